package datadog

import (
	"context"
	"time"

	"github.com/auditrelay/auditrelay/relay"
)

// delivery is one call of Deliver. While one request is under way, the next one is encoded and
// compressed, and then waits until the first is answered.
type delivery struct {
	sink     *Sink
	events   []relay.Event
	settled  []bool // by event: whether it is acknowledged, or among the failures
	failures []relay.Failure
}

// run sends the events. An error is retryable: events that are not settled by then were not
// sent, or not acknowledged.
func (d *delivery) run(ctx context.Context) error {
	now := d.sink.now()
	wait := func() error { return nil } // for the request under way
	for next := 0; next < len(d.events); {
		r := d.sink.newRequest()
		if next = d.fill(r, next, now); len(r.of) == 0 {
			r.release()
			continue
		}
		packed := r.pack(0, len(r.of))
		if err := wait(); err != nil {
			r.release()
			return err
		}
		wait = d.send(ctx, r, packed)
	}
	return wait()
}

// fill encodes the events from next on, as many as fit into a request, and returns the first one
// after them.
func (d *delivery) fill(r *request, next int, now time.Time) int {
	for ; next < len(d.events) && len(r.of) < maxEntries; next++ {
		before := len(r.text)
		text, err := r.encoder.appendEntry(r.text, &d.events[next], now)
		r.text = text
		switch full := len(text)+len(",") > maxRequestBytes; {
		case err != nil:
			d.refuse(next, err)
		case full && len(r.of) > 0: // it begins the next request
			r.text = text[:before]
			return next
		default:
			r.text = append(text, ',')
			r.ends, r.of = append(r.ends, len(r.text)), append(r.of, next)
		}
	}
	return next
}

// send starts to send a request. wait returns when it is answered and its events are settled.
func (d *delivery) send(ctx context.Context, r *request, packed []byte) (wait func() error) {
	done := make(chan error, 1)
	go func() { done <- r.send(ctx, packed, 0, len(r.of)) }()
	return func() error {
		err := <-done
		for _, i := range r.acked {
			d.settled[i] = true
		}
		for _, f := range r.refused {
			d.refuse(f.Index, f.Err)
		}
		r.release()
		return err
	}
}

// refuse settles an event that the intake does not take, or would not keep whole.
func (d *delivery) refuse(i int, err error) { d.fail(i, relay.Permanent(err)) }

func (d *delivery) fail(i int, err error) {
	d.failures = append(d.failures, relay.Failure{Index: i, Err: err})
	d.settled[i] = true
}

// outcome is that of all events. stopped, if it is not nil, kept the delivery from being finished.
func (d *delivery) outcome(stopped error) error {
	for i, settled := range d.settled {
		if !settled && stopped != nil {
			d.fail(i, stopped)
		}
	}
	return relay.Outcome(len(d.settled), d.failures)
}
