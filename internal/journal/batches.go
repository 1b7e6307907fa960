package journal

import (
	"context"
	"slices"
	"time"

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
// batch is due. It also returns the last record, or piece of one.
func (s *Source) gather(ctx context.Context, first fetched) (events []relay.Event, last fetched) {
	records, n, size := append(s.gathered[:0], first), len(first.events), first.size
	began, until := time.Now(), s.last.Add(linger)
	if s.limit.Wait > 0 {
		until = began.Add(s.limit.Wait)
	}
	for s.spare == nil && n < s.limit.Events && size < s.limit.Bytes {
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
		if n+len(r.events) > s.limit.Events || size+r.size > s.limit.Bytes {
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
			s.place(events[len(events)-len(records[i].events):], &records[i])
		}
	}
	clear(records)
	s.gathered = records
	return events, last
}

// place makes events tell where they stand in the record that they were fetched from.
func (s *Source) place(events []relay.Event, of *fetched) {
	if !s.placed || len(events) == 0 {
		return
	}
	record := &relay.Record{Position: uint64(of.pos), Checksum: of.sum}
	for i := range events {
		events[i].Record, events[i].Index = record, of.first+i
	}
}
