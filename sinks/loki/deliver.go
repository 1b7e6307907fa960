package loki

import (
	"context"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/auditrelay/auditrelay/relay"
)

// inFlight bounds the pushes that are under way at once, one per stream.
const inFlight = 8

// The size of a push before compression, in bytes. Loki's processes take 4 MiB from each other,
// and its rate limit lets 6 MB through at once; both count uncompressed bytes. A tenant or a
// proxy may take less: see narrow.
const (
	firstLimit = 2 << 20
	leastLimit = 16 << 10
	widening   = 64 // a full push that is accepted widens the limit by 1/64
)

// delivery is one call of Deliver.
type delivery struct {
	events []relay.Event
	next   atomic.Int32          // the index of the stream to push next
	halted atomic.Pointer[error] // why no further push makes sense
}

// worker pushes streams of a delivery, one after the other. It keeps its memory for the next
// delivery.
type worker struct {
	encoder
	*delivery

	failed []relay.Failure // those of the delivery
}

// pushAll pushes every stream, several at once. When it returns, nothing is being sent any
// more.
func (s *Sink) pushAll(ctx context.Context, events []relay.Event) {
	d := &delivery{events: events}
	var group sync.WaitGroup
	for n := range min(inFlight, len(s.work)) {
		w := &s.workers[n]
		w.Sink, w.delivery = s, d
		group.Go(func() {
			for i := int(d.next.Add(1)) - 1; i < len(s.work); i = int(d.next.Add(1)) - 1 {
				_ = w.deliver(ctx, s.work[i], s.work[i].run) // the error is in w.failed
			}
		})
	}
	group.Wait()
	for i := range s.workers {
		s.failed = append(s.failed, s.workers[i].failed...)
	}
}

// reset drops the delivery.
func (w *worker) reset() {
	w.encoder.reset()
	w.delivery = nil
	clear(w.failed)
	w.failed = w.failed[:0]
}

// deliver pushes a run, in order of time, to a stream, and those of its events that are too
// late to the next stream. It stops at the first retryable error, so that nothing overtakes the
// events that are tried again. Failures are recorded.
func (w *worker) deliver(ctx context.Context, st *stream, run []int32) error {
	st.behind = st.behind[:0]
	for len(run) > 0 {
		n := w.tooLate(st, run)
		st.behind = append(st.behind, run[:n]...)
		run = run[n:]
		n = w.fit(st, run)
		if err := w.send(ctx, st, run[:n]); err != nil {
			w.fail(run[n:], err)
			w.fail(st.behind, err)
			return err
		}
		run = run[n:]
	}
	return w.deliverLate(ctx, st)
}

// tooLate returns how many events at the start of run are known to be too late.
func (w *worker) tooLate(st *stream, run []int32) int {
	if st.level == byHour {
		return 0
	}
	bound := st.lateBefore(w.cfg.LateAfter)
	for n, i := range run {
		if w.events[i].Time.UnixNano() >= bound {
			return n
		}
	}
	return len(run)
}

// fit returns how many events from the start of run go into one push: one, as long as the
// newest entry in Loki is not known, and otherwise as many as the limit allows, but at least
// one.
func (w *worker) fit(st *stream, run []int32) int {
	if !st.known {
		return min(1, len(run))
	}
	limit := w.limit.Load()
	var size int64
	for n, i := range run {
		if size += entrySize(&w.events[i]); size > limit && n > 0 {
			return n
		}
	}
	return len(run)
}

// deliverLate pushes the events that are too late for a stream to the next one.
func (w *worker) deliverLate(ctx context.Context, st *stream) error {
	behind := st.behind
	if len(behind) == 0 {
		return nil
	}
	slices.SortStableFunc(behind, func(a, b int32) int { return w.events[a].Time.Compare(w.events[b].Time) })
	for n := 0; len(behind) > 0; behind = behind[n:] {
		n = len(behind)
		if st.level == lateStream { // an hour at a time
			of := hour(w.events[behind[0]].Time)
			n = 1
			for n < len(behind) && hour(w.events[behind[n]].Time) == of {
				n++
			}
		}
		next := w.nextStream(st, w.events[behind[0]].Time)
		if next == nil {
			w.fail(behind, relay.Permanent(errTooLate))
			return nil
		}
		if err := w.deliver(ctx, next, behind[:n]); err != nil {
			w.fail(behind[n:], err)
			return err
		}
	}
	return nil
}

func (w *worker) nextStream(st *stream, t time.Time) *stream {
	fresh := st.level == inTime && st.late == nil
	next := st.next(t)
	if fresh {
		w.log.Info("events came too late for their stream; they go to one with the label late",
			"stream", st.text, "late_stream", next.text)
	}
	return next
}

// send makes one push of a run. An error is retryable: the failures are recorded, and nothing
// that follows them may be sent.
func (w *worker) send(ctx context.Context, st *stream, run []int32) error {
	if len(run) == 0 {
		return nil
	}
	if err := w.halted.Load(); err != nil {
		w.fail(run, *err)
		return *err
	}
	body, err := w.encode(st.text, w.events, run)
	if err != nil {
		w.fail(run, err)
		return err
	}
	a, err := w.push(ctx, st.tenant, body)
	if err != nil {
		return w.halt(run, err)
	}
	switch a.class() {
	case acknowledged:
		w.widen()
		st.reach(w.events[run[len(run)-1]].Time.UnixNano())
		return nil
	case refused:
		return w.refused(ctx, st, run, a)
	case tooLarge:
		return w.smaller(ctx, st, run, a)
	default:
		if a.Status == http.StatusTooManyRequests {
			w.narrow()
		}
		return w.retry(run, a)
	}
}

// retry records that a run is to be tried again.
func (w *worker) retry(run []int32, a *answer) error {
	err := a.err()
	if a.concernsAll() {
		return w.halt(run, err)
	}
	w.fail(run, err)
	return err
}

// halt records an error that every other push would meet too.
func (w *worker) halt(run []int32, err error) error {
	w.halted.CompareAndSwap(nil, &err)
	w.fail(run, err)
	return err
}

// smaller pushes the halves of a run that is too large.
func (w *worker) smaller(ctx context.Context, st *stream, run []int32, a *answer) error {
	if len(run) == 1 {
		w.fail(run, relay.Permanent(a.errTooLarge(len(w.plain))))
		return nil
	}
	w.narrow()
	return w.halves(ctx, st, run)
}

func (w *worker) halves(ctx context.Context, st *stream, run []int32) error {
	half := len(run) / 2
	if err := w.send(ctx, st, run[:half]); err != nil {
		w.fail(run[half:], err)
		return err
	}
	return w.send(ctx, st, run[half:])
}

// refused follows Loki's answer about a run that was taken in part: late events are kept for
// another stream, bad ones fail for good, and doubtful ones are pushed again. There are fewer
// of those each time.
func (w *worker) refused(ctx context.Context, st *stream, run []int32, a *answer) error {
	r := readRefusal(a.Text, st.text)
	if r.mend != "" {
		return w.halt(run, a.errMend(r.mend))
	}
	r.doubt = r.doubt || a.Cut
	fates := r.fates(w.entries)
	if fates == nil {
		if len(run) == 1 {
			w.fail(run, relay.Permanent(a.errRefused(a.Text)))
			return nil
		}
		return w.halves(ctx, st, run)
	}
	var again []int32
	for n, f := range fates {
		i := run[n]
		switch f.verdict {
		case taken:
			st.reach(w.events[i].Time.UnixNano())
		case behind:
			st.behind = append(st.behind, i)
		case bad:
			w.fail(run[n:n+1], relay.Permanent(a.errRefused(f.why)))
		case unsure:
			again = append(again, i)
		}
	}
	if !r.oldest.IsZero() {
		st.reach(r.oldest.Add(w.cfg.LateAfter).UnixNano())
	}
	return w.send(ctx, st, again)
}

func (w *worker) fail(run []int32, err error) {
	for _, i := range run {
		w.failed = append(w.failed, relay.Failure{Index: int(i), Err: err})
	}
}

// narrow lowers the limit after a push that was too large for Loki, or for a proxy in front of
// it.
func (w *worker) narrow() {
	w.limit.Store(max(leastLimit, min(w.limit.Load(), int64(len(w.plain)))/2))
}

// widen raises the limit after a push that was accepted.
func (w *worker) widen() {
	if limit := w.limit.Load(); int64(len(w.plain)) > limit/2 {
		w.limit.Store(min(firstLimit, limit+limit/widening))
	}
}
