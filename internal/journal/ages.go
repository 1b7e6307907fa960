package journal

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// ages tells how long records have been kept, whatever the wall clock did
// meanwhile: it notes how far the stream reached at which moment of the
// process's monotonic clock. A restart forgets that, and then the records'
// stamps have to do: see oldPrefix.
type ages struct {
	mu   sync.Mutex
	seen []sighting // oldest first, the first of them at the journal's opening; guarded by mu
	// begun is the first sighting, which stays when seen is cut.
	begun sighting // set once, before the loops start
}

// sighting says that the stream ended with a record at some time.
type sighting struct {
	last uint64
	at   time.Time // with its monotonic reading
}

// maxSightings bounds the memory for them. Further apart they are less exact.
const maxSightings = 4096

// begin notes where the stream ends as the process begins to append.
func (a *ages) begin(last uint64, now time.Time) {
	a.begun = sighting{last, now}
	a.seen = append(a.seen[:0], a.begun)
}

// inherited is the newest record that an earlier process has committed.
func (a *ages) inherited() uint64 { return a.begun.last }

// steady is the time by the clock as it was at the start and as it is now,
// whichever is less: neither of the two may be ahead of the truth unnoticed.
func (a *ages) steady(now time.Time) time.Time {
	steady := a.begun.at.Round(0).Add(now.Sub(a.begun.at))
	if wall := now.Round(0); wall.Before(steady) {
		return wall
	}
	return steady
}

// see notes that the stream ends with a record now.
func (a *ages) see(last uint64, now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.seen) == maxSightings {
		for i := range maxSightings / 2 { // every second one stays
			a.seen[i] = a.seen[2*i+1]
		}
		a.seen = a.seen[:maxSightings/2]
	}
	a.seen = append(a.seen, sighting{last, now})
}

// olderThan is the newest record that is known to have been kept for longer
// than the window, or 0. Sightings before it are needed no more.
func (a *ages) olderThan(window time.Duration, now time.Time) uint64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	n := 0
	for n < len(a.seen) && now.Sub(a.seen[n].at) >= window {
		n++
	}
	if n == 0 {
		return 0
	}
	a.seen = append(a.seen[:0], a.seen[n-1:]...)
	return a.seen[0].last
}

// oldPrefix finds the records, from the given one on, that were certainly
// committed before a time, and returns the first that is to be kept. next gives
// the records' stamps in the order of their commit, until it returns false.
//
//   - A stamp in the future is of a clock that was ahead. It says nothing, but
//     the record is at least as old as one behind it that is old.
//   - Behind a stamp that is not old nothing goes: one of the clocks was wrong,
//     and it may have been the one that says old.
func oldPrefix(from uint64, before, now time.Time, next func() (record uint64, stamp time.Time, ok bool)) (keep uint64) {
	keep = from
	for {
		record, stamp, ok := next()
		switch {
		case !ok:
			return keep
		case stamp.After(now):
		case stamp.Before(before):
			keep = record + 1
		default:
			return keep
		}
	}
}

const (
	// walkRecords bounds how many stamps one trim reads, and walkAhead how many of
	// them are on their way.
	walkRecords = 50_000
	walkAhead   = 1024
)

// stampedBefore is the first record in [from, end) to be kept where those
// before a time go, by their stamps. It reads a bounded number of stamps, so
// that what is left is for the next call.
func (j *Journal) stampedBefore(ctx context.Context, from, end uint64, before, now time.Time) (uint64, error) {
	if from >= end {
		return from, nil
	}
	consumer, err := j.stream.OrderedConsumer(ctx, jetstream.OrderedConsumerConfig{
		DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: from, HeadersOnly: true,
	})
	if err != nil {
		return 0, fmt.Errorf("read the stamps of records from %d on: %w", from, err)
	}
	if consumer.CachedInfo().NumPending == 0 {
		return from, nil
	}
	it, err := consumer.Messages(jetstream.PullMaxMessages(walkAhead))
	if err != nil {
		return 0, fmt.Errorf("read the stamps of records from %d on: %w", from, err)
	}
	defer it.Stop()
	last, read := false, 0
	keep := oldPrefix(from, before, now, func() (uint64, time.Time, bool) {
		if last || read == walkRecords {
			return 0, time.Time{}, false
		}
		var meta *jetstream.MsgMetadata
		if meta, err = nextStamp(ctx, it); err != nil || meta.Sequence.Stream >= end {
			return 0, time.Time{}, false
		}
		read++
		last = meta.NumPending == 0
		return meta.Sequence.Stream, meta.Timestamp, true
	})
	if err != nil {
		return 0, fmt.Errorf("read the stamps of records from %d on: %w", from, err)
	}
	return keep, nil
}

func nextStamp(ctx context.Context, it jetstream.MessagesContext) (*jetstream.MsgMetadata, error) {
	msg, err := it.Next(jetstream.NextContext(ctx))
	if err != nil {
		return nil, err
	}
	return msg.Metadata()
}
