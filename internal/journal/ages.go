package journal

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// ages tells how long records have been kept, whatever the wall clock does. It notes
// the stream's end at moments of the monotonic clock. A restart loses these notes;
// the records' stamps then take their place: see oldPrefix.
type ages struct {
	mu   sync.Mutex
	seen []sighting // oldest first, the first of them at the journal's opening; guarded by mu
	// begun is the first sighting, which stays when seen is cut.
	begun sighting // set once, before the loops start
}

// sighting is the stream's last record at some moment.
type sighting struct {
	last uint64
	at   moment
}

// moment is a point in time by both clocks. The wall clock jumps when it is set; the
// monotonic clock never does.
type moment struct {
	wall time.Time     // without a monotonic reading
	up   time.Duration // by the monotonic clock, since any fixed point in the process
}

var processStart = time.Now()

func thisMoment() moment {
	now := time.Now()
	return moment{now.Round(0), now.Sub(processStart)}
}

// maxSightings bounds the memory for them. The further apart, the less exact.
const maxSightings = 4096

// begin notes the stream's end before the process appends.
func (a *ages) begin(last uint64, now moment) {
	a.begun = sighting{last, now}
	a.seen = append(a.seen[:0], a.begun)
}

// inherited is the newest record of an earlier process.
func (a *ages) inherited() uint64 { return a.begun.last }

// steady is the earlier of two times: the wall clock's, and the start's plus what the
// monotonic clock has measured since. So a clock that jumps ahead does not count.
func (a *ages) steady(now moment) time.Time {
	steady := a.begun.at.wall.Add(now.up - a.begun.at.up)
	if now.wall.Before(steady) {
		return now.wall
	}
	return steady
}

// see notes the stream's last record now.
func (a *ages) see(last uint64, now moment) {
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

// olderThan is the newest record that was certainly kept for longer than the window,
// or 0. It drops the sightings before it.
func (a *ages) olderThan(window time.Duration, now moment) uint64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	n := 0
	for n < len(a.seen) && now.up-a.seen[n].at.up >= window {
		n++
	}
	if n == 0 {
		return 0
	}
	a.seen = append(a.seen[:0], a.seen[n-1:]...)
	return a.seen[0].last
}

// oldPrefix returns the first record to keep, where those that were certainly
// committed before a time go. It starts at from; next gives the records' stamps in
// the order of their commit, until it returns false.
//
//   - A stamp in the future comes from a clock that was ahead, and says nothing. The
//     record is at least as old as an old one behind it.
//   - A stamp that is not old ends the prefix. An older stamp behind it contradicts
//     it, and either may be wrong.
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
	// walkRecords bounds the stamps that one trim reads, and walkAhead those that it
	// requests in advance.
	walkRecords = 50_000
	walkAhead   = 1024
)

// stampedBefore is the first record in [from, end) to keep, where those stamped
// before a time go. It reads a bounded number of stamps; the next call goes on.
func (j *Journal) stampedBefore(ctx context.Context, from, end uint64, before, now time.Time) (uint64, error) {
	if from >= end {
		return from, nil
	}
	// All before end was delivered. Only its last block may hold what was not.
	if err := j.asks(ctx, end); err != nil {
		return 0, err
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
