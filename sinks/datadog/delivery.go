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
	settled  []bool // by event: whether it is acknowledged, or among the failures
	failures []relay.Failure

	filling  *request
	underWay *request // nil if there is none
}

// run sends the events. An error is retryable: events that are not settled by then were not
// sent, or not acknowledged.
func (d *delivery) run(ctx context.Context, events []relay.Event) error {
	d.filling = d.sink.newRequest()
	defer func() { d.filling.release() }()
	now := d.sink.now()
	for i := range events {
		if err := d.add(ctx, i, &events[i], now); err != nil {
			return err
		}
	}
	if err := d.send(ctx, len(d.filling.of)); err != nil {
		return err
	}
	return d.wait()
}

// add puts the entry of event i into the request, and sends the request when it is full.
func (d *delivery) add(ctx context.Context, i int, e *relay.Event, now time.Time) error {
	if err := d.filling.add(i, e, now); err != nil {
		d.refuse(i, err)
		return nil
	}
	switch n := len(d.filling.of); {
	case n > 1 && d.filling.body.size() > maxRequestBytes:
		return d.send(ctx, n-1)
	case n == maxEntries:
		return d.send(ctx, n)
	}
	return nil
}

// send starts to send the first n entries, once the previous request is answered. The others
// begin the next request.
func (d *delivery) send(ctx context.Context, n int) error {
	if n == 0 {
		return nil
	}
	r := d.filling
	d.filling = d.sink.newRequest()
	d.filling.takeFrom(r, n)
	packed := r.body.pack(0, n)
	if err := d.wait(); err != nil {
		r.release()
		return err
	}
	d.underWay = r
	go func() {
		defer close(r.done)
		r.err = r.send(ctx, packed, 0, n)
	}()
	return nil
}

// wait waits until the request under way is answered, and settles its events.
func (d *delivery) wait() error {
	r := d.underWay
	if r == nil {
		return nil
	}
	<-r.done
	d.underWay = nil
	for _, i := range r.acked {
		d.settled[i] = true
	}
	for _, f := range r.refused {
		d.refuse(f.Index, f.Err)
	}
	r.release()
	return r.err
}

// refuse settles an event that the intake does not take, or would not keep whole.
func (d *delivery) refuse(i int, err error) {
	d.fail(i, relay.Permanent(err))
}

func (d *delivery) fail(i int, err error) {
	d.failures = append(d.failures, relay.Failure{Index: i, Err: err})
	d.settled[i] = true
}

// stopped is the outcome if err kept the delivery from being finished.
func (d *delivery) stopped(err error) error {
	for i, settled := range d.settled {
		if !settled {
			d.fail(i, err)
		}
	}
	return d.outcome()
}

func (d *delivery) outcome() error { return relay.Outcome(len(d.settled), d.failures) }
