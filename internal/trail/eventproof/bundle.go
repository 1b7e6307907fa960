package eventproof

import (
	"errors"
	"fmt"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/auditrelay/auditrelay/internal/journal/record"
	"github.com/auditrelay/auditrelay/internal/routing/cloudevents"
	"github.com/auditrelay/auditrelay/internal/trail/proof"
	"github.com/auditrelay/auditrelay/relay"
)

// Format names the format of a [Bundle], with its version.
const Format = "auditrelay.event-proof/1"

// Bundle proves one event against the entry of its span, without a relay. It tells nothing
// about any other event: their hashes are salted.
type Bundle struct {
	Format string `json:"format"`
	// Position is the record's in the journal, and Event the event's place in the record,
	// from 0.
	Position uint64 `json:"position"`
	Event    int    `json:"event"`
	// CloudEvent is the event in JSON, as the file sink writes it, and Salt is the event's own:
	// see [record.Salt].
	CloudEvent string `json:"cloud_event"`
	Salt       []byte `json:"salt"`
	// RecordEvents and RecordRoot are those of the record's leaf (see [Leaf]), and EventPath
	// leads from the event's leaf to RecordRoot.
	RecordEvents int              `json:"record_events"`
	RecordRoot   tlog.Hash        `json:"record_root"`
	EventPath    tlog.RecordProof `json:"event_path"`
	// Leaf is the record's place in the span's tree, from 0, and Path leads from there to
	// the root (RFC 6962, section 2.1.1).
	Leaf int64            `json:"leaf"`
	Path tlog.RecordProof `json:"path"`
	SpanEntry
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
func (b *Bundle) Verify() (p Proven, err error) {
	if p.Span, err = b.span(); err == nil {
		p.Event, err = b.event()
	}
	if err == nil {
		err = b.isIn(&p.Span)
	}
	if err != nil {
		return Proven{}, fmt.Errorf("verify the bundle: %w", err)
	}
	return p, nil
}

// isIn checks that the record is in the span.
func (b *Bundle) isIn(s *Span) error {
	switch {
	case b.Position < s.First || b.Position > s.Last || s.misses(b.Position):
		return fmt.Errorf("position %d is not in the span from %d to %d", b.Position, s.First, s.Last)
	case int64(b.RecordEvents) > s.Events:
		return fmt.Errorf("its record has %d events, and its span only %d", b.RecordEvents, s.Events)
	case !proof.IsInTree(b.Path, s.Records, s.Root, b.Leaf, Leaf(b.Position, b.RecordEvents, b.RecordRoot)):
		return errors.New("its record is not in the span: the root differs")
	}
	return nil
}

// event is the event, proven to be of a record with the root.
func (b *Bundle) event() (e relay.Event, err error) {
	if e, err = cloudevents.ParseJSON([]byte(b.CloudEvent)); err != nil {
		return e, err
	}
	salt, err := saltOf(b.Salt)
	if err != nil {
		return e, err
	}
	if e.ContentType != record.ContentType(e.Body) {
		return e, fmt.Errorf("its event has the content type %q, and no event with this body has it", e.ContentType)
	}
	if !proof.IsInTree(b.EventPath, int64(b.RecordEvents), b.RecordRoot, int64(b.Event), salt.Leaf(record.HashOf(&e))) {
		return e, errors.New("its event is not in its record: the root differs")
	}
	return e, nil
}

// saltOf reads a salt from JSON.
func saltOf(text []byte) (s record.Salt, err error) {
	if copy(s[:], text); len(text) != len(s) {
		return s, fmt.Errorf("its salt has %d bytes, not %d", len(text), len(s))
	}
	return s, nil
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
	case q.Whole && !q.hasAttributes(got):
		return errors.New("its type, subject, time, project, environment or content type differs from the received one: it was changed since")
	}
	return errors.New("the body differs from the received one: it was changed, or redacted on its way to the sink")
}
