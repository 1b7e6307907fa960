package digest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/auditrelay/auditrelay/internal/audit"
	"github.com/auditrelay/auditrelay/internal/json/jsondiff"
	"github.com/auditrelay/auditrelay/internal/record"
	"github.com/auditrelay/auditrelay/relay"
)

// Format is that of a [Bundle], with its version.
const Format = "auditrelay.event-proof/1"

// Bundle proves one event against the entry of its span, without a relay.
type Bundle struct {
	Format string `json:"format"`
	// Position is the record's in the journal, and Event the event's place in the record,
	// from 0.
	Position uint64 `json:"position"`
	Event    int    `json:"event"`
	// Record is the record as stored (see [record.Append]), with all its events.
	Record []byte `json:"record_base64"`
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

// Proven is what a bundle shows.
type Proven struct {
	Event relay.Event
	Span  Span
}

// ParseBundle reads a bundle. It proves nothing yet.
func ParseBundle(data []byte) (*Bundle, error) {
	b := &Bundle{}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(b); err != nil {
		return nil, fmt.Errorf("read the bundle: %w", err)
	}
	if b.Format != Format {
		return nil, fmt.Errorf("read the bundle: its format is %q, this version reads %q", b.Format, Format)
	}
	return b, nil
}

// Verify checks the event's way to the span's entry. Whether the trail has this entry, at
// this index, is for the entry's own proof.
func (b *Bundle) Verify() (Proven, error) {
	s, err := b.span()
	if err != nil {
		return Proven{}, fmt.Errorf("verify the bundle: %w", err)
	}
	d, err := record.DigestOf(b.Record)
	if err != nil {
		return Proven{}, fmt.Errorf("verify the bundle: %w", err)
	}
	if b.Position < s.First || b.Position > s.Last || s.misses(b.Position) {
		return Proven{}, fmt.Errorf("verify the bundle: position %d is not in the span from %d to %d", b.Position, s.First, s.Last)
	}
	if tlog.CheckRecord(b.Path, s.Records, s.Root, b.Leaf, Leaf(b.Position, d.Events, d.SHA256)) != nil {
		return Proven{}, errors.New("verify the bundle: its record is not in the span: the root differs")
	}
	p := Proven{Span: s}
	found := false
	err = eachEvent(b.Record, func(i int, e *relay.Event) bool {
		if found = i == b.Event; found {
			p.Event = *e
		}
		return !found
	})
	if err != nil || !found {
		return Proven{}, errors.Join(fmt.Errorf("verify the bundle: its record has no event %d", b.Event), err)
	}
	return p, nil
}

// Matches says how the proven event differs from another copy of it, or returns nil. Labels
// are not compared: sinks give them in forms of their own.
func (p *Proven) Matches(e *relay.Event) error {
	switch got := &p.Event; {
	case got.ID != e.ID:
		return fmt.Errorf("the bundle proves the event %q, not %q", got.ID, e.ID)
	case got.Source != e.Source:
		return fmt.Errorf("the bundle proves an event of %s, not of %s", got.Source, e.Source)
	case !got.Received.Equal(e.Received):
		return fmt.Errorf("the event was received at %s, not at %s", got.Received, e.Received)
	case !bytes.Equal(got.Body, e.Body):
		return errors.New("the body differs from the received one: it was changed, or redacted on its way to the sink")
	}
	return nil
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
