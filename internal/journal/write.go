package journal

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/auditrelay/auditrelay/internal/journal/record"
	"github.com/auditrelay/auditrelay/internal/store"
)

// packed is a group in the form of a record.
type packed struct {
	group  []segment
	data   []byte
	events int
	size   int // before compression
	start  time.Time
	sealed Sealed
	seal   *func(Sealed) // who is told of it; nil for nobody
	// total is the number of events that the log ever had, with the record's.
	total   uint64
	overdue *time.Timer
}

// Sealed is a durable record, as its commit knows it.
type Sealed struct {
	Position uint64
	record.Digest
}

// pack compresses a group. While it does, the record before may be on its way to the disk.
func (c *committer) pack(group []segment) *packed {
	p := &packed{group: group, start: time.Now()}
	parts := make([][]byte, len(group))
	for i, s := range group {
		p.events += s.events
		parts[i] = s.data
	}
	raw := bytes.Join(parts, nil) // not used again: sources get events that refer to it
	p.size = len(raw)
	buffer, _ := c.spare.Get().([]byte) // nil if there is none to spare
	p.data = record.Append(buffer, raw, p.events)
	content := record.Content(raw, p.events)
	if p.seal = c.j.sealed.Load(); p.seal != nil {
		p.sealed.Digest = record.DigestMade(p.data, content)
	}
	c.j.decoded.Keep(uint64(c.j.end.get().pos), p.data, content)
	return p
}

// write makes the record durable. After an error nobody may be told of success, although
// the record may have been stored: then its events count in the keys of later records, as if
// they had been there.
//
// A crash before the append leaves nothing, and one after it a record whose senders were
// not told: they push its events again.
func (c *committer) write(p *packed) (store.Pos, error) {
	ctx, cancel := context.WithDeadline(context.Background(), p.group[0].whole.since.Add(c.patience))
	defer cancel()
	draft := store.Draft{Kind: kindEvents, Key: keyOf(p.total, c.j.writer, c.j.set.marks.Load()), Data: p.data}
	at, err := c.j.events.Append(ctx, draft)
	if errors.Is(err, store.ErrFull) && c.j.makeRoom(ctx, p.stored()) == nil {
		at, err = c.j.events.Append(ctx, draft)
	}
	c.j.metrics.commit(p.start, p.events, p.size, len(p.data), err)
	switch {
	case errors.Is(err, store.ErrFull):
		return 0, fmt.Errorf("%w: %w", ErrFull, err)
	case err != nil:
		return 0, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	m := mark{pos: at, sum: record.Checksum(p.data), events: p.total, at: p.start}
	c.j.committed(m, int(p.stored()), p.shares())
	if p.seal != nil {
		p.sealed.Position = uint64(at)
		(*p.seal)(p.sealed)
	}
	return at, nil
}

// finish tells the senders of a group how its commit ended, and frees the record's memory.
func (c *committer) finish(p *packed, at store.Pos, err error) {
	for _, s := range p.group {
		s.whole.settle(at, err, p.stored())
	}
	c.spare.Put(p.data[:0]) //nolint:staticcheck // what it allocates is little next to the record
}

// recordFrame is about what a log takes for a record in addition to its data, in bytes. Of small
// records it is a large part.
const recordFrame = 144

// stored is about how many bytes of the budget the record takes.
func (p *packed) stored() int64 { return int64(len(p.data) + recordFrame) }

// shares divides the record among its sources.
func (p *packed) shares() []sourceBytes {
	shares := make([]sourceBytes, len(p.group))
	for i, s := range p.group {
		shares[i] = sourceBytes{Source: s.whole.source, Bytes: len(s.data)}
	}
	return shares
}
