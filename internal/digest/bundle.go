package digest

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/auditrelay/auditrelay/internal/audit"
	"github.com/auditrelay/auditrelay/internal/cloudevents"
	"github.com/auditrelay/auditrelay/internal/json/jsondiff"
	"github.com/auditrelay/auditrelay/internal/proof"
	"github.com/auditrelay/auditrelay/internal/record"
	"github.com/auditrelay/auditrelay/relay"
)

// Format names the format of a [Bundle], with its version.
const Format = "auditrelay.event-proof/1"

// Bundle proves one event against the entry of its span, without a relay. Either Alone or
// Record has the event.
type Bundle struct {
	Format string `json:"format"`
	// Position is the record's in the journal, and Event the event's place in the record,
	// from 0.
	Position uint64 `json:"position"`
	Event    int    `json:"event"`
	// Alone proves the event without the others of its record.
	Alone *Alone `json:"alone,omitempty"`
	// Record is a large record as stored (see [record.Append]), with all its events.
	Record []byte `json:"record_base64,omitempty"`
	// Leaf is the record's place in the span's tree, from 0, and Path leads from there to
	// the root (RFC 6962, section 2.1.1).
	Leaf int64            `json:"leaf"`
	Path tlog.RecordProof `json:"path"`
	// Entry is the record of the span's entry in the trail, as canonical JSON, and
	// EntryIndex its index.
	EntryIndex int64  `json:"entry_index"`
	Entry      string `json:"entry"`
	// Trail proves the entry: a .tlog-proof (https://c2sp.org/tlog-proof). Empty where it
	// is kept apart.
	Trail string `json:"tlog_proof,omitempty"`
}

// Alone is an event, and its way to the record's leaf.
type Alone struct {
	// CloudEvent is the event in JSON, as the file sink writes it.
	CloudEvent string `json:"cloud_event"`
	// Events, SHA256 (in hex) and Root are those of the record's leaf: see [Leaf].
	Events int       `json:"record_events"`
	SHA256 string    `json:"record_sha256"`
	Root   tlog.Hash `json:"record_root"`
	// Path leads from the event's leaf to Root.
	Path tlog.RecordProof `json:"path"`
}

// Proven is the event of a verified bundle, and its span.
type Proven struct {
	Event relay.Event
	Span  Span
}

// ParseBundle reads a bundle. It proves nothing yet.
func ParseBundle(data []byte) (*Bundle, error) {
	b := &Bundle{}
	if err := strict(data, b); err != nil {
		return nil, fmt.Errorf("read the bundle: %w", err)
	}
	if b.Format != Format {
		return nil, fmt.Errorf("read the bundle: its format is %q, this version reads %q", b.Format, Format)
	}
	return b, nil
}

// Verify checks the event's way to the span's entry. The entry, and its index, are for its own
// proof: Trail.
func (b *Bundle) Verify() (Proven, error) {
	s, err := b.span()
	if err != nil {
		return Proven{}, fmt.Errorf("verify the bundle: %w", err)
	}
	e, d, err := b.event()
	if err != nil {
		return Proven{}, fmt.Errorf("verify the bundle: %w", err)
	}
	if b.Position < s.First || b.Position > s.Last || s.misses(b.Position) {
		return Proven{}, fmt.Errorf("verify the bundle: position %d is not in the span from %d to %d", b.Position, s.First, s.Last)
	}
	if !proof.IsInTree(b.Path, s.Records, s.Root, b.Leaf, Leaf(b.Position, d)) {
		return Proven{}, errors.New("verify the bundle: its record is not in the span: the root differs")
	}
	return Proven{Event: e, Span: s}, nil
}

// event is the event, proven to be of a record with the digest.
func (b *Bundle) event() (e relay.Event, d record.Digest, err error) {
	if b.Alone != nil {
		return b.Alone.event(b.Event)
	}
	if d, err = record.DigestOf(b.Record); err != nil {
		return e, d, err
	}
	found := false
	err = eachEvent(b.Record, func(i int, at *relay.Event) bool {
		if found = i == b.Event; found {
			e = *at
		}
		return !found
	})
	if err == nil && !found {
		err = fmt.Errorf("its record has no event %d", b.Event)
	}
	return e, d, err
}

func (a *Alone) event(at int) (e relay.Event, d record.Digest, err error) {
	sum, err := hex.DecodeString(a.SHA256)
	if err != nil || len(sum) != len(d.SHA256) {
		return e, d, errors.New("its record_sha256 is no SHA-256 in hex")
	}
	d = record.Digest{SHA256: [sha256.Size]byte(sum), Events: a.Events, Root: a.Root}
	if e, err = cloudevents.ParseJSON([]byte(a.CloudEvent)); err != nil {
		return e, d, err
	}
	if !d.HasRoot() || !proof.IsInTree(a.Path, int64(a.Events), a.Root, int64(at), record.LeafOf(&e)) {
		return e, d, errors.New("its event is not in its record: the root differs")
	}
	return e, d, nil
}

// Matches says how the proven event differs from another copy of it, or returns nil. Labels
// are not compared: sinks give them in forms of their own.
func (p *Proven) Matches(q Query) error {
	switch got := &p.Event; {
	case q.fits(got):
		return nil
	case got.ID != q.ID:
		return fmt.Errorf("the bundle proves the event %q, not %q", got.ID, q.ID)
	case q.Source != "" && got.Source != q.Source:
		return fmt.Errorf("the bundle proves an event of %s, not of %s", got.Source, q.Source)
	case !q.Received.IsZero() && !got.Received.Equal(q.Received):
		return fmt.Errorf("the event was received at %s, not at %s", got.Received, q.Received)
	}
	return errors.New("the body differs from the received one: it was changed, or redacted on its way to the sink")
}

// span reads the entry.
func (b *Bundle) span() (Span, error) {
	canonical, err := jsondiff.Canonical([]byte(b.Entry))
	if err != nil {
		return Span{}, fmt.Errorf("its entry: %w", err)
	}
	if string(canonical) != b.Entry {
		return Span{}, errors.New("its entry is not canonical JSON")
	}
	e := audit.Entry{Index: b.EntryIndex}
	if err := json.Unmarshal(canonical, &e); err != nil {
		return Span{}, fmt.Errorf("its entry: %w", err)
	}
	return spanOf(&e)
}
