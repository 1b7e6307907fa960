package relay

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/auditrelay/auditrelay/internal/retry"
)

// worker makes a pump's deliveries to one instance of its sink, one at a time.
type worker struct {
	*Pump
	sink    Sink
	outage  *outage
	lasting context.Context // for the attempts; outlives Run's context by Grace
	failing string          // the last error of the delivery under way, if it is being retried
	refused []Rejection     // events of the delivery under way that are not in the dead letters yet

	pending   *window
	of        *unsettled   // the batch of the delivery under way
	aside     []*suspected // oldest first
	fruitless int          // pieces that were set aside since anything was delivered
	sent      bool         // by the last attempt, as far as the sink says
}

// run makes deliveries until work is closed. Unsettled deliveries stay in the window.
func (w *worker) run(ctx context.Context, work <-chan delivery) {
	for {
		select {
		case d, more := <-work:
			if !more {
				return
			}
			w.carry(ctx, d)
		case <-w.nextSuspect(ctx):
			_ = w.retryAside(ctx) // its error is ctx's, and what is not settled comes again
		}
	}
}

// carry makes one delivery, and settles it.
func (w *worker) carry(ctx context.Context, d delivery) {
	w.of = d.of
	err := w.settle(ctx, d.events, 0)
	if err == nil {
		err = w.reject(ctx)
	}
	if err == nil {
		w.recovered()
		w.pending.settle(d.of)
	}
	w.refused = nil // events that are not settled come again
}

// The wait between attempts grows from firstWait to maxWait. Each is drawn from its upper half,
// so that many relays do not come back at the same time.
const (
	firstWait = 100 * time.Millisecond
	maxWait   = 30 * time.Second
)

// settle returns once each event is delivered or refused. The refused events of a delivery that
// is halved go to the dead letters together, since each call costs a sync; if some event is
// retried meanwhile, the refused ones go first. attempts is how often the events were tried
// before. Once ctx has ended nothing is tried a second time. settle returns no errors other
// than ctx's.
func (w *worker) settle(ctx context.Context, events []Event, attempts int) error {
	wait := firstWait
	for {
		if attempts > 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		_ = w.retryAside(ctx) // its error is ctx's, which is looked at below
		err := w.deliver(events)
		w.prove(err == nil)
		attempts++
		if err == nil {
			w.recovered()
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		verdict := judge(events, err)
		w.Metrics.deliver(w.Name, verdict.delivered)
		w.refuse(events, verdict.refused, attempts)
		suspect := w.ReadAhead && verdict.suspect && attempts >= suspectAfter
		halve := len(events) > 1 && w.fruitless < fruitlessSplits
		if suspect && !halve && w.setAside(events, attempts, err) {
			w.recovered()
			return nil
		}
		if verdict.split || suspect && halve { // halving will show which
			half := len(events) / 2
			if err := w.settle(ctx, events[:half], attempts); err != nil {
				return err
			}
			return w.settle(ctx, events[half:], attempts)
		}
		if len(verdict.again) == 0 {
			w.recovered()
			return nil
		}
		if len(verdict.again) < len(events) {
			wait = firstWait // there is progress
		}
		events = verdict.again
		if err := w.reject(ctx); err != nil { // the other events may be retried for a long time
			return err
		}
		if verdict.atOnce {
			continue
		}
		w.retrying(verdict.cause, len(events))
		if err := retry.Sleep(ctx, max(jitter(wait), verdict.after)); err != nil {
			return err
		}
		wait = min(2*wait, maxWait)
	}
}

// deliver makes one attempt.
func (w *worker) deliver(events []Event) error {
	if err := w.Permit(w.lasting); err != nil {
		return err
	}
	attempt, cancel := context.WithTimeout(w.lasting, w.Timeout)
	defer cancel()
	start, sends := time.Now(), w.sends()
	err := w.sink.Deliver(attempt, events)
	w.sent = sends == 0 || w.sends() > sends
	w.Metrics.attempt(w.Name, time.Since(start), err)
	if err == nil {
		w.Metrics.deliver(w.Name, events)
	}
	return err
}

// refuse takes in refused events.
func (w *worker) refuse(events []Event, refused []Failure, attempts int) {
	for _, f := range refused {
		w.refused = append(w.refused, Rejection{Event: events[f.Index], Reason: f.Err.Error(), Attempts: attempts})
	}
}

// reject puts the refused events into the dead letters, and tries until they are durable, since
// nothing that follows them may be acknowledged earlier. If the process crashes before that,
// they are delivered again; if it crashes afterwards, they may be in the dead letters twice.
func (w *worker) reject(ctx context.Context) error {
	if len(w.refused) == 0 {
		return nil
	}
	for wait := firstWait; ; wait = min(2*wait, maxWait) {
		err := w.Permit(ctx)
		if err == nil {
			err = w.DeadLetters.Reject(ctx, w.Name, w.refused)
		}
		if err == nil {
			break
		}
		w.retrying(fmt.Errorf("keep dead letters: %w", err), len(w.refused))
		if err := retry.Sleep(ctx, jitter(wait)); err != nil {
			return err
		}
	}
	w.Metrics.reject(w.Name, len(w.refused))
	w.outage.refused(w.refused)
	w.refused = nil
	return nil
}

// retrying records a failed attempt of the delivery under way.
func (w *worker) retrying(err error, events int) {
	text := err.Error()
	w.outage.retry(w.failing, text, events)
	w.failing = text
}

func (w *worker) recovered() {
	w.outage.recover(w.failing)
	w.failing = ""
}

// jitter draws a duration from the upper half of d.
func jitter(d time.Duration) time.Duration { return d/2 + rand.N(d/2+1) }
