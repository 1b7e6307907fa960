package eventproof

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/auditrelay/auditrelay/internal/journal"
	"github.com/auditrelay/auditrelay/internal/journal/record"
	"github.com/auditrelay/auditrelay/internal/jsontext"
	"github.com/auditrelay/auditrelay/internal/routing/cloudevents"
	"github.com/auditrelay/auditrelay/internal/trail/audit"
	"github.com/auditrelay/auditrelay/internal/trail/proof"
	"github.com/auditrelay/auditrelay/relay"
)

// Query names an event. ID alone is needed; the others narrow the search, and must fit.
type Query struct {
	ID       string    `json:"id"`
	Source   string    `json:"source,omitempty"`
	Received time.Time `json:"received,omitzero"`
	// BodySHA256 is the hash of the body, in hex.
	BodySHA256 string `json:"body_sha256,omitempty"`
	// Whole: the other attributes are compared too, also empty ones.
	Whole       bool      `json:"whole,omitempty"`
	Type        string    `json:"type,omitempty"`
	Subject     string    `json:"subject,omitempty"`
	Time        time.Time `json:"time,omitzero"`
	Project     string    `json:"project,omitempty"`
	Environment string    `json:"environment,omitempty"`
	ContentType string    `json:"content_type,omitempty"`
}

// QueryOf names an event by its copy at a sink: by the whole of it, or where it has no source
// by its id and its body.
func QueryOf(e *relay.Event) Query {
	return Query{
		ID: e.ID, Source: e.Source, Received: e.Received, BodySHA256: jsontext.Hash(e.Body),
		Whole: e.Source != "", Type: e.Type, Subject: e.Subject, Time: e.Time, Project: e.Project, Environment: e.Environment,
		ContentType: e.ContentType,
	}
}

// fits reports whether q names e.
func (q *Query) fits(e *relay.Event) bool {
	return q.ID == e.ID && (q.Source == "" || q.Source == e.Source) &&
		(q.Received.IsZero() || q.Received.Equal(e.Received)) && (q.BodySHA256 == "" || q.BodySHA256 == jsontext.Hash(e.Body)) &&
		(!q.Whole || q.hasAttributes(e))
}

func (q *Query) hasAttributes(e *relay.Event) bool {
	return q.Type == e.Type && q.Subject == e.Subject && q.Time.Equal(e.Time) && q.Project == e.Project && q.Environment == e.Environment &&
		q.ContentType == e.ContentType && q.Received.Equal(e.Received)
}

// mayBeIn reports whether an event received at the time can be in a span.
func (q *Query) mayBeIn(s *Span) bool {
	return q.Received.IsZero() || !q.Received.Before(s.FirstReceived) && !q.Received.After(s.LastReceived)
}

// ErrNotFound means an event in no span with its records still in the journal.
var ErrNotFound = errors.New("no span has the event")

// Prove finds the newest fitting event, and proves it. It reads the spans of each log from the
// newest back, and the records of each possible one.
func Prove(ctx context.Context, logs []*journal.Journal, t *audit.Trail, q Query) (b *Bundle, err error) {
	for shard, j := range logs {
		b, err = proveOf(ctx, j, SubjectOf(shard), t, q)
		if !errors.Is(err, ErrNotFound) {
			return b, err
		}
	}
	return nil, err
}

func proveOf(ctx context.Context, j *journal.Journal, subject string, t *audit.Trail, q Query) (*Bundle, error) {
	first, _, err := j.Ends(ctx)
	if err != nil {
		return nil, err
	}
	e, found, err := t.Last(ctx, Project, "", subject)
	if err != nil {
		return nil, err
	}
	if !found {
		return nil, fmt.Errorf("%w: the trail has no span yet (see audit.spans in the configuration)", ErrNotFound)
	}
	newest := uint64(0)
	for {
		s, err := spanOf(&e)
		if err != nil {
			return nil, err
		}
		newest = max(newest, s.Last)
		if s.Last >= first && q.mayBeIn(&s) {
			if b, err := proveIn(ctx, j, &e, s, q); b != nil || err != nil {
				return b, err
			}
		}
		if s.Previous == nil || s.Last < first {
			return nil, fmt.Errorf("%w %q: the journal's records from position %d on were searched, up to %d, where the newest span ends; later events will be in the next span, and earlier records are trimmed",
				ErrNotFound, q.ID, first, newest)
		}
		before, err := t.Get(ctx, s.Previous.Index)
		if err != nil {
			return nil, fmt.Errorf("read the span before position %d: %w", s.First, err)
		}
		e = before.Entry
	}
}

// proveIn proves an event of a span; it returns nil if the span does not have it.
func proveIn(ctx context.Context, j *journal.Journal, e *audit.Entry, s Span, q Query) (*Bundle, error) {
	var found *Bundle
	var stored []byte // the record that has it
	var leaves []tlog.Hash
	err := s.records(ctx, j, func(position uint64, data []byte, d record.Digest) bool {
		if b, has := bundleOf(data, &q, d); has {
			found, stored = b, bytes.Clone(data)
			b.Position, b.Leaf = position, int64(len(leaves))
		}
		leaves = append(leaves, Leaf(position, d.Events, d.Root))
		return true
	})
	if err != nil || found == nil {
		return nil, err
	}
	if err := found.open(stored); err != nil {
		return nil, fmt.Errorf("prove the event at position %d: %w", found.Position, err)
	}
	tree := proof.Edge{}.With(leaves...)
	if err := s.holds(&tree); err != nil {
		return nil, fmt.Errorf("the event stands at position %d, but it cannot be proven: %w", found.Position, err)
	}
	found.Path = pathIn(leaves, found.Leaf)
	found.SpanEntry, err = entryOf(e)
	return found, err
}

// bundleOf begins the bundle of the first event in a sound record that fits.
func bundleOf(data []byte, q *Query, d record.Digest) (b *Bundle, found bool) {
	b = &Bundle{Format: Format, RecordEvents: d.Events, RecordRoot: d.Root}
	eachEvent(data, func(i int, e *relay.Event) bool {
		if found = q.fits(e); found {
			b.Event, b.CloudEvent = i, string(cloudevents.AppendJSON(nil, e))
		}
		return !found
	})
	return b, found
}

// open adds the salt of the event, and its way to the root of its record.
func (b *Bundle) open(data []byte) error {
	salt := record.SaltOf(data)
	event := salt.Event(b.Event)
	b.Salt, b.EventPath = event[:], pathIn(salt.Leaves(hashesOf(data)), int64(b.Event))
	_, err := b.event() // whose attributes may have no form in JSON
	return err
}

// hashesOf are the hashes of a sound record's events.
func hashesOf(data []byte) (all []tlog.Hash) {
	eachEvent(data, func(_ int, e *relay.Event) bool {
		all = append(all, record.HashOf(e))
		return true
	})
	return all
}

// eachEvent calls visit with the events of a record, as far as it can be read, until it returns false.
func eachEvent(data []byte, visit func(i int, e *relay.Event) bool) {
	n := 0
	for events, err := range record.Pieces(data) {
		if err != nil {
			return
		}
		for i := range events {
			if !visit(n+i, &events[i]) {
				return
			}
		}
		n += len(events)
	}
}

// misses reports whether the span has no record at a position.
func (s *Span) misses(position uint64) bool {
	return slices.ContainsFunc(s.Missing, func(m Missing) bool { return m.From <= position && position <= m.To })
}

// pathIn leads from a leaf to the root of a tree (RFC 6962, section 2.1.1).
func pathIn(leaves []tlog.Hash, leaf int64) tlog.RecordProof {
	if len(leaves) < 2 {
		return tlog.RecordProof{}
	}
	left := int64(1) << (bits.Len(uint(len(leaves)-1)) - 1)
	if leaf < left {
		return append(pathIn(leaves[:left], leaf), proof.Edge{}.With(leaves[left:]...).Root())
	}
	return append(pathIn(leaves[left:], leaf-left), proof.Edge{}.With(leaves[:left]...).Root())
}
