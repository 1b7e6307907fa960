package workspacesim

import (
	"context"
	"log/slog"
	"math"
	"math/rand/v2"
	"time"
)

// pushAll pushes queued events until ctx ends.
func (st *stream) pushAll(ctx context.Context) {
	defer context.AfterFunc(ctx, st.broadcast)()
	var taken []segment
	var b bodyBuffer
	for {
		if taken = st.take(ctx, taken); len(taken) == 0 {
			return
		}
		st.pushOne(ctx, taken, &b)
	}
}

// pushOne pushes segments until the destination has acknowledged them. It drops them if
// the destination refuses them, or is gone. It looks up the destination before each
// attempt.
func (st *stream) pushOne(ctx context.Context, segments []segment, b *bodyBuffer) {
	var built *target
	for attempt := 0; ; attempt++ {
		st.mu.Lock()
		t, retargeted := st.env.target.Load(), st.retargeted
		st.mu.Unlock()
		if t == nil {
			st.settle(segments, &st.dropped, &st.counts.Dropped)
			return
		}
		if built == nil || built.kind != t.kind {
			b.build(st, t, segments)
			built = t
		}
		r := st.push.send(ctx, t, b)
		st.note(r, attempt)
		switch {
		case r.acknowledged():
			st.pushAgain(ctx, t, segments, b)
			st.settle(segments, &st.acked, &st.counts.Acknowledged)
			return
		case ctx.Err() != nil:
			st.putBack(segments)
			return
		case r.refused() && st.env.target.Load() == t:
			st.settle(segments, &st.dropped, &st.counts.Dropped)
			return
		case !r.refused():
			st.backOff(ctx, attempt, r.retryAfter, retargeted)
		}
	}
}

// pushAgain repeats a share of the acknowledged pushes, like a sender after a lost
// answer. It ignores its own answer.
func (st *stream) pushAgain(ctx context.Context, t *target, segments []segment, b *bodyBuffer) {
	if !share(st.gen.seed^segments[0].From^0xa9a1, st.opts.RepushShare) {
		return
	}
	st.push.send(ctx, t, b)
	st.mu.Lock()
	defer st.mu.Unlock()
	st.counts.Repushed++
}

// share draws true for a share of the keys.
func share(key uint64, of float64) bool {
	return float64(mix(key)>>11)/(1<<53) < of
}

// note counts an attempt, and logs the first failure of a row and its end.
func (st *stream) note(r result, attempt int) {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.counts.Pushes++
	if attempt > 0 {
		st.counts.Retries++
	}
	if failing := !r.acknowledged(); failing != st.failing {
		st.failing = failing
		if failing {
			st.log.Warn("push failed", slog.Int("status", r.status), slog.Any("error", r.err))
		} else {
			st.log.Info("pushes are acknowledged again")
		}
	}
}

// backOff waits between RetryMin and RetryMax, or for the destination's Retry-After. A
// new destination ends the wait.
func (st *stream) backOff(ctx context.Context, attempt int, retryAfter time.Duration, retargeted <-chan struct{}) {
	d := float64(st.opts.RetryMin) * math.Pow(2, float64(min(attempt, 30)))
	d = min(d, float64(st.opts.RetryMax)) * (0.5 + rand.Float64()/2)
	t := time.NewTimer(max(time.Duration(d), retryAfter))
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	case <-retargeted:
	}
}
