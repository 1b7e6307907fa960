package loki

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/auditrelay/auditrelay/relay"
)

// inFlight bounds the pushes under way at once, one a stream.
const inFlight = 8

// The size of a push before compression, in bytes. Loki's processes take 4 MiB
// from each other, and its rate limit lets 6 MB through at once, both as they
// come. A tenant or a proxy may take less: see narrow.
const (
	firstLimit = 2 << 20
	leastLimit = 16 << 10
	widening   = 64 // a full push that went well widens the limit by 1/64
)

// delivery is one call of Deliver.
type delivery struct {
	events []relay.Event
	next   atomic.Int32          // the stream that is to be pushed next
	halted atomic.Pointer[error] // why no further push makes sense
}

// courier pushes streams of a delivery, one after the other.
type courier struct {
	*encoder
	*delivery

	failed []relay.Failure
}

// pushAll pushes every stream, several at once. When it returns, nothing is
// being sent any more.
func (s *Sink) pushAll(ctx context.Context, events []relay.Event) (failed []relay.Failure) {
	d := &delivery{events: events}
	couriers := make([]courier, min(inFlight, len(s.work)))
	var group sync.WaitGroup
	for w := range couriers {
		c := &couriers[w]
		s.workers[w].Sink = s
		c.encoder, c.delivery = &s.workers[w], d
		group.Go(func() {
			for i := int(d.next.Add(1)) - 1; i < len(s.work); i = int(d.next.Add(1)) - 1 {
				_ = c.deliver(ctx, s.work[i], s.work[i].run) // it is in c.failed
			}
		})
	}
	group.Wait()
	for i := range couriers {
		failed = append(failed, couriers[i].failed...)
	}
	return failed
}

// outcome says what became of n events.
func outcome(failed []relay.Failure, n int) error {
	if len(failed) == 0 {
		return nil
	}
	forGood := func(f relay.Failure) bool { return relay.IsPermanent(f.Err) }
	if len(failed) == n && !slices.ContainsFunc(failed, forGood) {
		return longest(failed)
	}
	failures := slices.Clone(failed)
	slices.SortFunc(failures, func(a, b relay.Failure) int { return cmp.Compare(a.Index, b.Index) })
	return &relay.PartialError{Failures: failures}
}

// longest is the error that asks for the longest wait.
func longest(failed []relay.Failure) error {
	return slices.MaxFunc(failed, func(a, b relay.Failure) int {
		wait, _ := relay.RetryDelay(a.Err)
		other, _ := relay.RetryDelay(b.Err)
		return cmp.Compare(wait, other)
	}).Err
}

// deliver pushes a run, which is in order of time, to a stream, and what is too
// late for it to the next. At the first error that may pass it stops, so that
// nothing overtakes what is tried again. What failed is noted.
func (c *courier) deliver(ctx context.Context, st *stream, run []int32) error {
	st.behind = st.behind[:0]
	for len(run) > 0 {
		n := c.tooLate(st, run)
		st.behind = append(st.behind, run[:n]...)
		run = run[n:]
		n = c.fit(st, run)
		if err := c.send(ctx, st, run[:n]); err != nil {
			c.fail(run[n:], err)
			c.fail(st.behind, err)
			return err
		}
		run = run[n:]
	}
	return c.deliverLate(ctx, st)
}

// tooLate is how many at the start of run are known to be too late.
func (c *courier) tooLate(st *stream, run []int32) int {
	if st.level == byHour {
		return 0
	}
	bound := st.lateBefore(c.lateAfter)
	for n, i := range run {
		if c.events[i].Time.UnixNano() >= bound {
			return n
		}
	}
	return len(run)
}

// fit returns how many events from the start of run go into one push: one, as
// long as it is not known where Loki stands; else as many as the limit allows,
// and at least one.
func (c *courier) fit(st *stream, run []int32) int {
	if !st.known {
		return min(1, len(run))
	}
	limit := c.limit.Load()
	var size int64
	for n, i := range run {
		if size += entrySize(&c.events[i]); size > limit && n > 0 {
			return n
		}
	}
	return len(run)
}

// deliverLate pushes what was too late for a stream to the next.
func (c *courier) deliverLate(ctx context.Context, st *stream) error {
	behind := st.behind
	if len(behind) == 0 {
		return nil
	}
	slices.SortStableFunc(behind, func(a, b int32) int { return c.events[a].Time.Compare(c.events[b].Time) })
	for n := 0; len(behind) > 0; behind = behind[n:] {
		n = len(behind)
		if st.level == lateStream { // an hour at a time
			of := hour(c.events[behind[0]].Time)
			n = 1
			for n < len(behind) && hour(c.events[behind[n]].Time) == of {
				n++
			}
		}
		next := c.nextStream(st, c.events[behind[0]].Time)
		if next == nil {
			c.fail(behind, relay.Permanent(errTooLate))
			return nil
		}
		if err := c.deliver(ctx, next, behind[:n]); err != nil {
			c.fail(behind[n:], err)
			return err
		}
	}
	return nil
}

func (c *courier) nextStream(st *stream, t time.Time) *stream {
	fresh := st.level == inTime && st.late == nil
	next := st.next(t)
	if fresh {
		c.log.Info("events come too late for their stream; they go to one with the label late",
			"stream", st.text, "late_stream", next.text)
	}
	return next
}

// send pushes a piece of a run. An error is one that may pass: what failed is
// noted, and nothing of what follows may be sent.
func (c *courier) send(ctx context.Context, st *stream, piece []int32) error {
	if len(piece) == 0 {
		return nil
	}
	if err := c.halted.Load(); err != nil {
		c.fail(piece, *err)
		return *err
	}
	body, err := c.encode(st.text, c.events, piece)
	if err != nil {
		c.fail(piece, err)
		return err
	}
	a, err := c.push(ctx, st.tenant, body)
	if err != nil {
		return c.halt(piece, err)
	}
	switch a.class() {
	case acknowledged:
		c.widen()
		st.reach(c.events[piece[len(piece)-1]].Time.UnixNano())
		return nil
	case refused:
		return c.refused(ctx, st, piece, a)
	case tooLarge:
		return c.smaller(ctx, st, piece, a)
	default:
		if a.status == http.StatusTooManyRequests {
			c.narrow()
		}
		return c.retry(piece, a)
	}
}

// retry notes that a piece has to be tried again.
func (c *courier) retry(piece []int32, a *answer) error {
	err := a.err()
	if a.concernsAll() {
		return c.halt(piece, err)
	}
	c.fail(piece, err)
	return err
}

// halt notes an error that every other push would meet as well.
func (c *courier) halt(piece []int32, err error) error {
	c.halted.CompareAndSwap(nil, &err)
	c.fail(piece, err)
	return err
}

// smaller pushes the halves of a piece that was too large.
func (c *courier) smaller(ctx context.Context, st *stream, piece []int32, a *answer) error {
	if len(piece) == 1 {
		c.fail(piece, relay.Permanent(a.errTooLarge(len(c.plain))))
		return nil
	}
	c.narrow()
	return c.halves(ctx, st, piece)
}

func (c *courier) halves(ctx context.Context, st *stream, piece []int32) error {
	half := len(piece) / 2
	if err := c.send(ctx, st, piece[:half]); err != nil {
		c.fail(piece[half:], err)
		return err
	}
	return c.send(ctx, st, piece[half:])
}

// refused goes by what Loki says of a piece that it took in part: what is late
// is kept for another stream, what is bad fails for good, and what is in doubt
// is pushed again. Each time there is less of it.
func (c *courier) refused(ctx context.Context, st *stream, piece []int32, a *answer) error {
	r := readRefusal(a.text, st.text)
	if r.mend != "" {
		return c.halt(piece, a.errMend(r.mend))
	}
	r.doubt = r.doubt || a.cut
	fates := r.fates(c.entries)
	if fates == nil {
		if len(piece) == 1 {
			c.fail(piece, relay.Permanent(a.errRefused(a.text)))
			return nil
		}
		return c.halves(ctx, st, piece)
	}
	var again []int32
	for n, f := range fates {
		i := piece[n]
		switch f.verdict {
		case taken:
			st.reach(c.events[i].Time.UnixNano())
		case behind:
			st.behind = append(st.behind, i)
		case bad:
			c.fail(piece[n:n+1], relay.Permanent(a.errRefused(f.why)))
		case unsure:
			again = append(again, i)
		}
	}
	if !r.oldest.IsZero() {
		st.reach(r.oldest.Add(c.lateAfter).UnixNano())
	}
	return c.send(ctx, st, again)
}

func (c *courier) fail(run []int32, err error) {
	for _, i := range run {
		c.failed = append(c.failed, relay.Failure{Index: int(i), Err: err})
	}
}

// narrow learns that a push was too much for Loki, or for what stands before it.
func (c *courier) narrow() {
	c.limit.Store(max(leastLimit, min(c.limit.Load(), int64(len(c.plain)))/2))
}

// widen learns that a push went well.
func (c *courier) widen() {
	if limit := c.limit.Load(); int64(len(c.plain)) > limit/2 {
		c.limit.Store(min(firstLimit, limit+limit/widening))
	}
}
