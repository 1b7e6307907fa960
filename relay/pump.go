package relay

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"
)

// Pump carries events from a source to one sink: in order, at least once, and
// for as long as it takes. It holds the one retry loop of the relay; sinks only
// say what kind of error they met.
//
// Nothing is dropped: an event is acknowledged to the source after its sink has
// acknowledged it, or after it stands in the dead letters.
type Pump struct {
	// Name is the sink's.
	Name        string
	Source      Source
	Sink        Sink
	DeadLetters DeadLetters
	// Limit bounds what one delivery holds. Zero values mean 5000 events and
	// 4 MiB of bodies; a single larger event goes alone.
	Limit BatchLimit
	// Timeout bounds one attempt; zero means 30 s.
	Timeout time.Duration
	// Grace is what a delivery under way gets to end when Run is told to; zero
	// means 5 s.
	Grace   time.Duration
	Logger  *slog.Logger
	Metrics *Metrics

	failing string    // the error that is being retried, logged once; owned by Run
	since   time.Time // when failing began; owned by Run
}

// BatchLimit bounds a delivery.
type BatchLimit struct{ Events, Bytes int }

// The wait between attempts grows from firstWait to maxWait, each drawn from
// its upper half so that many relays do not come back at once.
const (
	firstWait = 100 * time.Millisecond
	maxWait   = 30 * time.Second
)

// Run carries events until ctx ends or the source fails, and returns why. When
// ctx ends nothing more is read and no further attempt is made; the one under
// way has Grace to end. What is not acknowledged by then is read again at the
// next start.
func (p *Pump) Run(ctx context.Context) error {
	p.Metrics.failing(p.Name, false)
	if p.Timeout == 0 {
		p.Timeout = 30 * time.Second
	}
	if p.Grace == 0 {
		p.Grace = 5 * time.Second
	}
	if p.Limit.Events == 0 {
		p.Limit.Events = 5000
	}
	if p.Limit.Bytes == 0 {
		p.Limit.Bytes = 4 << 20
	}
	for {
		batch, err := p.Source.Next(ctx)
		if err != nil {
			return fmt.Errorf("read events for sink %s: %w", p.Name, err)
		}
		for rest := batch.Events; len(rest) > 0; {
			n := p.cut(rest)
			if err := p.settle(ctx, rest[:n], 0); err != nil {
				return fmt.Errorf("deliver to sink %s: %w", p.Name, err)
			}
			rest = rest[n:]
		}
		// A crash before the acknowledgement is on disk delivers the batch
		// again, with the same ids.
		if err := p.Source.Ack(context.WithoutCancel(ctx), batch.Position); err != nil {
			return fmt.Errorf("record the position of sink %s: %w", p.Name, err)
		}
	}
}

// cut is how many of the events make up the next delivery.
func (p *Pump) cut(events []Event) int {
	n, size := 0, 0
	for n < len(events) && n < p.Limit.Events {
		size += len(events[n].Body)
		if size > p.Limit.Bytes && n > 0 {
			break
		}
		n++
	}
	return n
}

// settle returns when each event is delivered or stands in the dead letters.
// attempts is how often they were tried before. Its only errors are ctx's.
func (p *Pump) settle(ctx context.Context, events []Event, attempts int) error {
	wait := firstWait
	for {
		err := p.deliver(ctx, events)
		attempts++
		if err == nil {
			p.recovered()
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		verdict := judge(events, err)
		p.Metrics.deliver(p.Name, verdict.delivered)
		if len(verdict.refused) > 0 {
			if err := p.reject(ctx, events, verdict.refused, attempts); err != nil {
				return err
			}
		}
		if verdict.split { // which of them it is shows when they are halved
			half := len(events) / 2
			if err := p.settle(ctx, events[:half], attempts); err != nil {
				return err
			}
			return p.settle(ctx, events[half:], attempts)
		}
		if len(verdict.again) == 0 {
			p.recovered()
			return nil
		}
		if len(verdict.again) < len(events) {
			wait = firstWait // it gets on
		}
		events = verdict.again
		p.retrying(verdict.cause, len(events))
		if err := sleep(ctx, max(jitter(wait), verdict.after)); err != nil {
			return err
		}
		wait = min(2*wait, maxWait)
	}
}

// deliver makes one attempt.
func (p *Pump) deliver(ctx context.Context, events []Event) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	attempt, cancel := context.WithTimeout(context.WithoutCancel(ctx), p.Timeout)
	defer cancel()
	defer context.AfterFunc(ctx, func() { _ = sleep(attempt, p.Grace); cancel() })()
	start := time.Now()
	err := p.Sink.Deliver(attempt, events)
	p.Metrics.attempt(p.Name, time.Since(start), err)
	if err == nil {
		p.Metrics.deliver(p.Name, events)
	}
	return err
}

// verdict is what an error means for the events of a delivery.
type verdict struct {
	delivered []Event       // were acknowledged in spite of the error
	refused   []Failure     // go to the dead letters
	again     []Event       // are tried again, in their order
	split     bool          // some event among them is refused, but which is not known
	after     time.Duration // wait at least this long
	cause     error         // why they are tried again
}

// judge classifies an error. It is the one place that does.
func judge(events []Event, err error) verdict {
	var partial *PartialError
	if errors.As(err, &partial) && plausible(partial, len(events)) {
		return judgePartial(events, partial)
	}
	if !IsPermanent(err) {
		after, _ := RetryDelay(err)
		return verdict{again: events, after: after, cause: err}
	}
	if len(events) == 1 {
		return verdict{refused: []Failure{{Index: 0, Err: err}}}
	}
	return verdict{split: true}
}

func judgePartial(events []Event, partial *PartialError) verdict {
	var v verdict
	next := 0
	for _, f := range partial.Failures {
		v.delivered = append(v.delivered, events[next:f.Index]...)
		next = f.Index + 1
		if IsPermanent(f.Err) {
			v.refused = append(v.refused, f)
			continue
		}
		after, _ := RetryDelay(f.Err)
		v.again, v.after = append(v.again, events[f.Index]), max(v.after, after)
		if v.cause == nil {
			v.cause = f.Err
		}
	}
	v.delivered = append(v.delivered, events[next:]...)
	return v
}

// plausible reports whether the error names events of the delivery, in order.
// A sink that names none, or others, is not to be believed: everything is
// delivered again.
func plausible(partial *PartialError, n int) bool {
	last := -1
	for _, f := range partial.Failures {
		if f.Index <= last || f.Index >= n || f.Err == nil {
			return false
		}
		last = f.Index
	}
	return last >= 0
}

// reject puts events into the dead letters, and tries until they are there:
// until then nothing behind them may be acknowledged.
func (p *Pump) reject(ctx context.Context, events []Event, refused []Failure, attempts int) error {
	rejections := make([]Rejection, len(refused))
	for i, f := range refused {
		rejections[i] = Rejection{Event: events[f.Index], Reason: f.Err.Error(), Attempts: attempts}
	}
	for wait := firstWait; ; wait = min(2*wait, maxWait) {
		err := p.DeadLetters.Reject(ctx, p.Name, rejections)
		if err == nil {
			break
		}
		p.retrying(fmt.Errorf("keep dead letters: %w", err), len(rejections))
		if err := sleep(ctx, jitter(wait)); err != nil {
			return err
		}
	}
	p.Metrics.reject(p.Name, len(rejections))
	p.Logger.Warn("sink refused events; they are in the dead letters",
		"sink", p.Name, "events", len(rejections), "first_event", rejections[0].Event.ID, "reason", rejections[0].Reason)
	return nil
}

// retrying logs an error when it is first met, and not again while it lasts.
func (p *Pump) retrying(err error, events int) {
	p.Metrics.retry(p.Name)
	if p.failing == "" {
		p.since = time.Now()
	}
	if text := err.Error(); text != p.failing {
		p.failing = text
		p.Logger.Warn("delivery failed; it is tried again until it succeeds",
			"sink", p.Name, "events", events, "error", text)
	}
	p.Metrics.failing(p.Name, true)
}

func (p *Pump) recovered() {
	if p.failing == "" {
		return
	}
	p.Logger.Info("delivery works again", "sink", p.Name, "after", time.Since(p.since).Round(time.Millisecond))
	p.failing = ""
	p.Metrics.failing(p.Name, false)
}

// jitter draws from the upper half of d.
func jitter(d time.Duration) time.Duration { return d/2 + rand.N(d/2+1) }

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
