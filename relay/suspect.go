package relay

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// Suspect marks err as an error that a single event may have caused, as a receiver's 500 may be.
// It is tried again like any other, but if the sink goes on to refuse one event by itself,
// and each time accepts the events that it gets next, that event goes to the dead letters.
func Suspect(err error) error { return &marked[suspectMark]{error: err} }

type suspectMark struct{}

// IsSuspect reports whether err, or an error it wraps, is marked with [Suspect].
func IsSuspect(err error) bool {
	_, ok := markOf[suspectMark](err)
	return ok
}

// Selective is a Sink that may acknowledge events without sending any, so that a success proves
// nothing about the destination.
type Selective interface {
	// Sends is 1 and the number of deliveries of which something was sent.
	Sends() uint64
}

// sends is 0 for a sink that sends everything.
func (w *worker) sends() uint64 {
	if s, ok := w.sink.(Selective); ok {
		return s.Sends()
	}
	return 0
}

const (
	// suspectAfter is how many attempts of a delivery fail, in about half a minute, before the
	// pump looks for an event that causes it.
	suspectAfter = 8
	// proofs is how often the next delivery must succeed right after the event was refused by
	// itself. With the pauses of up to maxWait, that takes about four minutes.
	proofs = 12
	// fruitlessSplits and fruitlessAside are how many pieces of deliveries are set aside one after
	// the other, without a success in between, while they are still halved, and in all. Beyond
	// that it is the destination that fails.
	fruitlessSplits, fruitlessAside = 4, 16
	// heldBatches is about how many batches are read ahead while an event is set aside. A crash
	// delivers them again.
	heldBatches = 256
)

// suspected is a piece of a delivery, in the end a single event, that is set aside while others are
// delivered. Its batch is not settled, so that it comes again after a crash.
type suspected struct {
	events   []Event
	of       *unsettled
	attempts int
	error    error // of the last attempt
	proofs   int
	tried    bool // since the last delivery of other events
	wait     time.Duration
	due      time.Time // the next attempt
}

// setAside sets a piece of a delivery aside, unless it seems to be the destination that fails.
func (w *worker) setAside(events []Event, attempts int, err error) bool {
	if w.fruitless >= fruitlessAside {
		return false
	}
	w.fruitless++
	w.of.left.Add(1)
	w.aside = append(w.aside, &suspected{
		events: events, of: w.of, attempts: attempts, error: err, wait: firstWait, due: time.Now().Add(firstWait),
	})
	w.pending.setAside(1)
	w.outage.retry("", err.Error(), len(events))
	return true
}

// nextSuspect fires when a piece that was set aside is due. It is nil if there is none, or ctx has
// ended.
func (w *worker) nextSuspect(ctx context.Context) <-chan time.Time {
	if len(w.aside) == 0 || ctx.Err() != nil {
		return nil
	}
	next := w.aside[0].due
	for _, s := range w.aside[1:] {
		if w.fruitless == 0 && s.due.Before(next) {
			next = s.due
		}
	}
	return time.After(time.Until(next))
}

// retryAside tries the pieces again that were set aside and are due. Before anything has succeeded
// it tries the first one, due or not, and goes on with the others after its success: so they keep
// their order in an outage. It returns no errors other than ctx's.
func (w *worker) retryAside(ctx context.Context) error {
	ordered := w.fruitless > 0
	for i := 0; i < len(w.aside) && ctx.Err() == nil; i++ {
		s := w.aside[i]
		if !ordered && time.Now().Before(s.due) {
			continue
		}
		done, err := w.retrySuspect(ctx, s)
		switch {
		case err != nil:
			return err
		case done:
			w.aside = slices.Delete(w.aside, i, i+1)
			i--
			w.outage.recover(s.error.Error())
			w.pending.setAside(-1)
			w.pending.settle(s.of)
		case ordered:
			return nil
		case len(s.events) > 1 && s.proofs > 0:
			w.aside = slices.Insert(w.aside, i+1, s.halve())
			s.of.left.Add(1)
			w.pending.setAside(1)
			w.outage.retry("", s.error.Error(), len(s.events))
			i-- // its first half is due at once
		}
	}
	return ctx.Err()
}

// halve keeps the first half of a piece, and returns the other.
func (s *suspected) halve() *suspected {
	half := len(s.events) / 2
	s.proofs, s.tried, s.wait, s.due = 0, false, firstWait, time.Now()
	other := *s
	s.events, other.events = s.events[:half:half], s.events[half:]
	return &other
}

// retrySuspect reports whether a piece that was set aside is delivered now, or is in the dead
// letters.
func (w *worker) retrySuspect(ctx context.Context, s *suspected) (done bool, err error) {
	err = w.deliver(s.events)
	if err == nil {
		if w.sent {
			w.fruitless = 0
		}
		return true, nil
	}
	if ctx.Err() != nil {
		return false, ctx.Err()
	}
	s.attempts++
	verdict := judge(s.events, err)
	w.Metrics.deliver(w.Name, verdict.delivered)
	refused := verdict.refused
	if len(s.events) == 1 && len(refused) == 0 && verdict.suspect && s.proofs >= proofs {
		refused = []Failure{{Err: fmt.Errorf("it was refused %d times by itself, while others were accepted: %w", s.attempts, err)}}
		verdict.again = nil
	}
	w.refuse(s.events, refused, s.attempts)
	if err := w.reject(ctx); err != nil {
		return false, err
	}
	if !verdict.split && len(verdict.again) == 0 {
		return true, nil
	}
	if !verdict.split {
		s.events = verdict.again
	}
	w.again(s, err, verdict)
	return false, nil
}

// again has a piece that was set aside tried again later. The others get room for a delivery that
// shows whether the destination works.
func (w *worker) again(s *suspected, err error, v verdict) {
	if v.split {
		s.proofs = 1 // some event among them is refused for good: halving will show which
	}
	w.outage.retry(s.error.Error(), err.Error(), len(s.events))
	s.error = err
	if time.Now().Before(s.due) {
		return
	}
	s.tried, s.wait = true, min(2*s.wait, maxWait)
	s.due = time.Now().Add(max(jitter(s.wait), v.after))
	w.pending.allow()
}

// prove records for the pieces that were tried again whether the next delivery succeeded.
func (w *worker) prove(succeeded bool) {
	if succeeded && !w.sent {
		return
	}
	if succeeded {
		w.fruitless = 0
	}
	for _, s := range w.aside {
		if s.tried && succeeded && IsSuspect(s.error) {
			s.proofs++
		}
		s.tried = false
	}
}
