package workspacesim

import (
	"context"
	"log/slog"
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// maxRate bounds an environment's rate, in events a second.
const maxRate = 10_000_000

func isRate(x float64) bool { return x >= 0 && x <= maxRate }

// segment is a run of events generated together, evenly in time.
type segment struct {
	Range
	at, step int64 // of the first event in Unix nanoseconds, and between two events
}

// stream is the event log of one environment: a generating goroutine, a queue, and
// pushing goroutines.
type stream struct {
	env  *environment
	opts *Options
	log  *slog.Logger
	gen  *generator
	push *pusherClient
	rate atomic.Uint64 // math.Float64bits of events a second

	mu sync.Mutex // guards the fields below
	// moved signals changes to the queue and to the events in flight.
	moved *sync.Cond
	// retargeted is closed and replaced when the destination changes.
	retargeted chan struct{}
	paused     bool
	held       bool          // pushes wait in the queue
	lateness   time.Duration // taken off the time of each event
	oneIn      uint64        // one event in so many is streamed; 0 is all
	passedOver uint64        // since the last one
	failing    bool          // the last attempt failed, and this was logged
	full       bool          // the last events were dropped, and this was logged
	queue      []segment
	next       uint64 // sequence number of the next event
	acked      rangeSet
	dropped    rangeSet
	counts     Counts // InFlight is computed on demand
}

func (s *Simulator) newStream(e *environment) *stream {
	st := &stream{
		env: e, opts: &s.opts, gen: newGenerator(&s.opts, e), push: s.pushes,
		log:        s.log.With(slog.String("project", e.project), slog.String("environment", e.slug)),
		retargeted: make(chan struct{}), paused: s.paused,
	}
	st.moved = sync.NewCond(&st.mu)
	st.setRate(s.opts.Rate)
	return st
}

func (st *stream) setRate(perSecond float64) { st.rate.Store(math.Float64bits(perSecond)) }

// retarget ends the waits of pushes after failures at the former destination.
func (st *stream) retarget() {
	st.mu.Lock()
	defer st.mu.Unlock()
	close(st.retargeted)
	st.retargeted = make(chan struct{})
	st.failing = false
}

// run starts the stream's goroutines; wg counts them.
func (st *stream) run(ctx context.Context, wg *sync.WaitGroup) {
	wg.Go(func() { st.generate(ctx) })
	for range st.opts.PushesInFlight {
		wg.Go(func() { st.pushAll(ctx) })
	}
}

// generate lets events happen at the stream's rate until ctx ends.
func (st *stream) generate(ctx context.Context) {
	defer context.AfterFunc(ctx, st.broadcast)()
	ticker := time.NewTicker(st.opts.PushEvery)
	defer ticker.Stop()
	last, due := time.Now(), 0.0
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		now := time.Now()
		since := min(now.Sub(last), max(time.Second, st.opts.PushEvery)) // after a sleep, a machine catches up on no burst
		last = now
		due += math.Float64frombits(st.rate.Load()) * since.Seconds()
		if n := uint64(due); n > 0 {
			due -= float64(n)
			st.happen(n, since)
		}
	}
}

func (st *stream) broadcast() {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.moved.Broadcast()
}

// happen makes n events, evenly over the time since the last ones.
func (st *stream) happen(n uint64, since time.Duration) {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.paused {
		return
	}
	if st.oneIn > 1 {
		all := n + st.passedOver
		n, st.passedOver = all/st.oneIn, all%st.oneIn
		st.counts.Unstreamed += all - st.passedOver - n
	}
	if n > 0 {
		st.happenAt(n, st.opts.Now().Add(-since-st.lateness), since)
	}
}

// happenAt makes n events, evenly over span from a time on. They queue, unless there is no
// destination: then nobody ever hears of them. The caller holds st.mu.
func (st *stream) happenAt(n uint64, from time.Time, span time.Duration) {
	if st.env.target.Load() == nil {
		st.counts.Unstreamed += n
		return
	}
	room := uint64(max(0, st.opts.QueueEvents-int(st.inFlight())))
	kept := min(n, room)
	st.enqueue(kept, from.UnixNano(), int64(span)/int64(n))
	st.overflow(n - kept)
	st.moved.Broadcast()
}

// enqueue cuts n events into segments of one push each. The caller holds st.mu.
func (st *stream) enqueue(n uint64, at, step int64) {
	for n > 0 {
		k := min(n, uint64(st.opts.PushEvents))
		st.queue = append(st.queue, segment{Range{st.next, st.next + k}, at, step})
		st.next += k
		n -= k
		at += int64(k) * step
	}
}

// overflow drops n events without room in the queue. The caller holds st.mu.
func (st *stream) overflow(n uint64) {
	if n > 0 {
		st.dropped.add(Range{st.next, st.next + n})
		st.next += n
		st.counts.Dropped += n
	}
	if full := n > 0; full != st.full {
		st.full = full
		if full {
			st.log.Warn("queue is full, events are dropped", slog.Int("queue_events", st.opts.QueueEvents))
		}
	}
}

// inFlight counts the events neither acknowledged nor dropped. The caller holds st.mu.
func (st *stream) inFlight() uint64 {
	return st.next - st.counts.Acknowledged - st.counts.Dropped
}

// take waits for events and takes as many as one push may hold, the oldest
// first. It returns none when ctx has ended.
func (st *stream) take(ctx context.Context, into []segment) []segment {
	st.mu.Lock()
	defer st.mu.Unlock()
	for (st.held || len(st.queue) == 0) && ctx.Err() == nil {
		st.moved.Wait()
	}
	if ctx.Err() != nil {
		return nil
	}
	events, n := uint64(0), 0
	for n < len(st.queue) {
		events += st.queue[n].To - st.queue[n].From
		if n > 0 && events > uint64(st.opts.PushEvents) {
			break
		}
		n++
	}
	into = append(into[:0], st.queue[:n]...)
	st.queue = st.queue[n:]
	return into
}

// putBack returns taken events to the queue, unpushed.
func (st *stream) putBack(taken []segment) {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.queue = append(append([]segment(nil), taken...), st.queue...)
}

// settle records the end of a push: acknowledged, or dropped.
func (st *stream) settle(pushed []segment, set *rangeSet, count *uint64) {
	st.mu.Lock()
	defer st.mu.Unlock()
	for _, s := range pushed {
		set.add(s.Range)
		*count += s.To - s.From
	}
	if st.inFlight() == 0 {
		st.moved.Broadcast()
	}
}
