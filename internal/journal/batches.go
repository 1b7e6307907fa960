package journal

import (
	"context"
	"slices"
	"time"

	"github.com/auditrelay/auditrelay/internal/journal/record"
	"github.com/auditrelay/auditrelay/relay"
)

const (
	// linger is the least time between two batches, unless one has lingerEvents
	// earlier. Under a stream of small pushes a batch then holds several commits,
	// and sinks send fewer requests. A batch after a pause is given at once. A wait in the
	// source's limit counts instead of both.
	linger       = 5 * time.Millisecond
	lingerEvents = 1000
	// backlogLinger is how long a batch of a backlog is added to, while each of its records comes
	// within linger. Without it a slow sink would get, after an outage, the few records of each batch
	// that were decoded while it delivered the one before.
	backlogLinger = 50 * time.Millisecond
)

// gather adds the records that are there already, and those that arrive until the next
// batch is due. It also returns the last record.
func (s *Source) gather(ctx context.Context, first fetched) (events []relay.Event, last fetched) {
	records, n, size := append(s.gathered[:0], first), len(first.events), first.size
	began, until := time.Now(), s.last.Add(linger)
	if s.limit.Wait > 0 {
		until = began.Add(s.limit.Wait)
	}
	for s.spare == nil && first.large == nil && n < s.limit.Events && size < s.limit.Bytes {
		if n >= lingerEvents && s.limit.Wait == 0 {
			until = s.last // only records that are there already
		}
		if now := time.Now(); s.backlog {
			until = latest(until, now.Add(min(linger, backlogLinger-now.Sub(began))))
		}
		r, ok := s.more(ctx, until)
		if !ok {
			break
		}
		if r.large != nil || n+len(r.events) > s.limit.Events || size+r.size > s.limit.Bytes {
			s.spare = &r
			break
		}
		records, n, size = append(records, r), n+len(r.events), size+r.size
	}
	return s.join(records, n)
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// more gives the next record, if one is there or arrives by until.
func (s *Source) more(ctx context.Context, until time.Time) (fetched, bool) {
	select {
	case r, ok := <-s.decoded:
		return r, ok
	default:
	}
	left := time.Until(until)
	if left <= 0 {
		return fetched{}, false
	}
	timer := time.NewTimer(left)
	defer timer.Stop()
	select {
	case r, ok := <-s.decoded:
		return r, ok
	case <-timer.C:
	case <-ctx.Done():
	}
	return fetched{}, false
}

// join gives the n events of records, and the last record. Sources share the
// records' slices, so nothing may be appended to those.
func (s *Source) join(records []fetched, n int) (events []relay.Event, last fetched) {
	last = records[len(records)-1]
	events = slices.Clip(records[0].events)
	if len(records) > 1 || s.placed {
		events = make([]relay.Event, 0, n)
		for i := range records {
			events = append(events, records[i].events...)
			s.place(events[len(events)-len(records[i].events):], &records[i].mark, 0)
		}
	}
	clear(records)
	s.gathered = records
	return events, last
}

// place makes events tell where they stand: in the record at a mark, from an index on.
func (s *Source) place(events []relay.Event, at *mark, from int) {
	if !s.placed || len(events) == 0 {
		return
	}
	record := &relay.Record{Position: uint64(at.pos), Checksum: at.sum}
	for i := range events {
		events[i].Record, events[i].Index = record, from+i
	}
}

// pieces is a record that is given in several batches, since all its events at once take
// too much memory. Only the last batch acknowledges the record. After a crash it is read
// again from its start.
type pieces struct {
	fetched
	reader *record.Reader
	given  uint64 // pieces
	passed int    // events in the pieces given
	before mark   // what an acknowledgement of a piece but the last covers
}

// opens begins to give a large record in pieces.
func (s *Source) opens(last *fetched) bool {
	reader, err := record.Open(last.large)
	if err != nil {
		return false // cannot happen: it was read before
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rest = &pieces{fetched: *last, reader: reader, before: s.read}
	s.rest.large = nil
	return true
}

// piece gives the next piece of the open record.
func (s *Source) piece() (relay.Batch, error) {
	p := s.rest
	events, _, err := p.reader.Next(nil, min(record.PieceBytes, max(1, s.limit.Bytes)))
	if err != nil {
		return relay.Batch{}, err
	}
	s.place(events, &p.mark, p.passed)
	s.last = time.Now()
	p.given, p.passed = p.given+1, p.passed+len(events)
	through, number := p.before, p.given
	if p.reader.Done() {
		s.rest = nil
		through, number = p.mark, lastPiece
	}
	return relay.Batch{Events: events, Position: s.give(&p.fetched, through, number)}, nil
}
