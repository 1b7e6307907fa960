package eventproof

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/auditrelay/auditrelay/internal/journal"
	"github.com/auditrelay/auditrelay/internal/journal/record"
	"github.com/auditrelay/auditrelay/internal/jsontext"
	"github.com/auditrelay/auditrelay/internal/trail/audit"
	"github.com/auditrelay/auditrelay/internal/trail/proof"
)

// Where spans stand in the trail.
const (
	Type    = "events.span"
	Project = "auditrelay"
	Subject = "events"
)

// SubjectOf is the subject of the spans of one log, by its number: the first one's is [Subject].
func SubjectOf(shard int) string {
	if shard == 0 {
		return Subject
	}
	return Subject + "/" + strconv.Itoa(shard)
}

// logOf is the log that an entry's span is of.
func logOf(logs []*journal.Journal, e *audit.Entry) (*journal.Journal, error) {
	for shard, log := range logs {
		if e.Subject == SubjectOf(shard) {
			return log, nil
		}
	}
	return nil, fmt.Errorf("the span of entry %d is of the log %q, which the journal does not have", e.Index, e.Subject)
}

// Span is the detail of an entry: the journal's records at a run of positions. None of its
// hashes confirms a guess at an event, since entries also go to sinks that redact: see
// [record.Salt].
type Span struct {
	// First and Last are positions of the journal, both included.
	First uint64 `json:"first_position"`
	Last  uint64 `json:"last_position"`
	// Records and Events count the records and events under Root.
	Records int64 `json:"records"`
	Events  int64 `json:"events"`
	// FirstReceived and LastReceived are the earliest and latest time an event was received.
	FirstReceived time.Time `json:"first_received,omitzero"`
	LastReceived  time.Time `json:"last_received,omitzero"`
	// Root is the root of the Merkle tree (RFC 6962) over the records: see [Leaf].
	Root tlog.Hash `json:"root"`
	// LastLeaf is the leaf of the record at Last; absent where the record is missing.
	LastLeaf tlog.Hash `json:"last_leaf,omitzero"`
	// Missing are the positions without a record under Root. Of many runs, MoreMissing
	// counts the positions of those left out.
	Missing     []Missing `json:"missing,omitempty"`
	MoreMissing uint64    `json:"more_missing,omitempty"`
	// Again, where set, is the last position of an earlier span: the stream went back, and
	// those from First on have other records now.
	Again uint64 `json:"again_to,omitempty"`
	// Previous is the span before; nil in the first one.
	Previous *Previous `json:"previous,omitempty"`
}

// Missing is a run of positions without a record.
type Missing struct {
	From   uint64 `json:"from"`
	To     uint64 `json:"to"`
	Reason string `json:"reason"`
}

// Previous names the entry of a span.
type Previous struct {
	Index int64 `json:"index"`
	// SHA256 is the hash of its detail as canonical JSON (RFC 8785).
	SHA256 string `json:"detail_sha256"`
}

// The reasons of missing positions.
const (
	reasonLost    = "lost or damaged: the quarantine says more"
	reasonTrimmed = "trimmed before a span was made"
)

// mostMissing bounds the runs named by a span.
const mostMissing = 1000

// Leaf is a record's leaf: the RFC 6962 hash of the line "POSITION EVENTS ROOT\n", with
// decimal numbers, and in base64 the root over the record's events (see [record.Salt]).
func Leaf(position uint64, events int, root tlog.Hash) tlog.Hash {
	return tlog.RecordHash(fmt.Appendf(nil, "%d %d %s\n", position, events, root))
}

// miss notes positions without a record.
func (s *Span) miss(from, to uint64, reason string) {
	if from > to {
		return
	}
	if n := len(s.Missing); n > 0 && s.Missing[n-1].To+1 == from && s.Missing[n-1].Reason == reason {
		s.Missing[n-1].To = to
		return
	}
	if len(s.Missing) == mostMissing {
		s.MoreMissing += to - from + 1
		return
	}
	s.Missing = append(s.Missing, Missing{from, to, reason})
}

// spanOf reads a span from its entry.
func spanOf(e *audit.Entry) (s Span, err error) {
	if e.Type != Type {
		return s, fmt.Errorf("entry %d is of the type %s, not %s", e.Index, e.Type, Type)
	}
	if err := json.Unmarshal(e.Detail, &s); err != nil {
		return s, fmt.Errorf("read the span of entry %d: %w", e.Index, err)
	}
	if s.First < 1 || s.Last < s.First || s.Records < 0 || s.Events < 0 {
		return s, fmt.Errorf("read the span of entry %d: its numbers contradict each other", e.Index)
	}
	return s, nil
}

// previousOf names an entry.
func previousOf(e *audit.Entry) (*Previous, error) {
	canonical, err := jsontext.Canonical(e.Detail)
	if err != nil {
		return nil, fmt.Errorf("hash entry %d: %w", e.Index, err)
	}
	return &Previous{Index: e.Index, SHA256: jsontext.Hash(canonical)}, nil
}

// SpanEntry is the entry of a span in the trail.
type SpanEntry struct {
	// Entry is its record, as canonical JSON, and EntryIndex its index.
	EntryIndex int64  `json:"entry_index"`
	Entry      string `json:"entry"`
	// Trail proves the entry: a .tlog-proof (https://c2sp.org/tlog-proof). Empty where it
	// is kept apart.
	Trail string `json:"tlog_proof,omitempty"`
}

// entryOf is the entry as the trail has it.
func entryOf(e *audit.Entry) (SpanEntry, error) {
	raw, err := json.Marshal(e)
	if err == nil {
		raw, err = jsontext.Canonical(raw)
	}
	if err != nil {
		return SpanEntry{}, fmt.Errorf("encode entry %d: %w", e.Index, err)
	}
	return SpanEntry{EntryIndex: e.Index, Entry: string(raw)}, nil
}

// span reads the entry.
func (s *SpanEntry) span() (Span, error) {
	canonical, err := jsontext.Canonical([]byte(s.Entry))
	e := audit.Entry{Index: s.EntryIndex}
	if err == nil {
		err = json.Unmarshal(canonical, &e)
	}
	if err != nil {
		return Span{}, fmt.Errorf("its entry: %w", err)
	}
	if string(canonical) != s.Entry {
		return Span{}, errors.New("its entry is not canonical JSON")
	}
	return spanOf(&e)
}

// building is a span in the making.
type building struct {
	span     Span
	tree     proof.Edge // over the records
	last     tlog.Hash  // leaf of the newest record; zero where it is missing
	pushed   bool       // it holds an event other than the relay's own
	previous int64      // index of the newest span's entry, -1 for none
}

// begin makes an empty span from a position on.
func begin(from uint64, previous *Previous) building {
	b := building{span: Span{First: from, Last: from - 1, Previous: previous}, previous: -1}
	if previous != nil {
		b.previous = previous.Index
	}
	return b
}

// next is the position after the span.
func (b *building) next() uint64 { return b.span.Last + 1 }

// add takes in the record at next.
func (b *building) add(position uint64, d record.Digest) {
	s := &b.span
	b.last = Leaf(position, d.Events, d.Root)
	b.tree.Add(b.last)
	s.Last = position
	s.Records++
	s.Events += int64(d.Events)
	b.pushed = b.pushed || d.Pushed
	if s.FirstReceived.IsZero() || d.First.Before(s.FirstReceived) {
		s.FirstReceived = d.First
	}
	if d.Last.After(s.LastReceived) {
		s.LastReceived = d.Last
	}
}

// skip passes over the positions before to, without a record. trimmed is the newest
// position trimmed on purpose.
func (b *building) skip(to, trimmed uint64) {
	from := b.next()
	if from >= to {
		return
	}
	b.span.miss(from, min(to-1, trimmed), reasonTrimmed)
	b.span.miss(max(from, trimmed+1), to-1, reasonLost)
	b.span.Last, b.last = to-1, tlog.Hash{}
}

// worth reports whether a span is to be entered.
func (b *building) worth() bool { return b.pushed || len(b.span.Missing) > 0 }

// entry makes the entry of the span as it is.
func (b *building) entry(now time.Time) (*audit.Entry, error) {
	s := b.span
	s.Root, s.LastLeaf = b.tree.Root(), b.last
	detail, err := json.Marshal(s)
	if err != nil {
		return nil, fmt.Errorf("encode a span: %w", err)
	}
	return &audit.Entry{Type: Type, Project: Project, Subject: Subject, Time: now, Detail: detail}, nil
}
