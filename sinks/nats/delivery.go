package nats

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"

	"github.com/auditrelay/auditrelay/relay"
)

// The bounds of messages in flight. A JetStream server queues 10,000 messages or 128 MiB per
// stream, and refuses more.
const (
	maxInFlight      = 4096
	maxInFlightBytes = 8 << 20
)

// delivery is one call of Deliver. Its publisher and the callbacks with the acknowledgements
// share it.
type delivery struct {
	events []relay.Event
	first  uint64        // the number of events[0]
	wake   chan struct{} // has room for one; filled when the publisher may go on

	mu       sync.Mutex // guards the fields below
	settled  []bool     // by index: acknowledged or refused
	refused  map[int]error
	sent     int // the number of events published, including those refused
	inFlight int
	bytes    int   // size of the bodies in flight
	target   int   // fill wake when inFlight is no more than this; -1 for never
	failure  error // why the delivery was stopped; nil while it goes on
}

func (c *connection) deliverAcknowledged(ctx context.Context, events []relay.Event, b *builder) error {
	d := &delivery{
		events: events, first: c.next, settled: make([]bool, len(events)),
		wake: make(chan struct{}, 1), target: -1,
	}
	c.next += uint64(len(events))
	c.delivery.Store(d)
	defer c.delivery.Store(nil)
	for i := range events {
		if half, full := d.full(); full && !c.wait(ctx, d, half) {
			break
		}
		c.publish(ctx, d, i, b)
		if d.stopped() {
			break
		}
	}
	c.wait(ctx, d, 0)
	return c.outcome(d, b)
}

func (c *connection) publish(ctx context.Context, d *delivery, i int, b *builder) {
	reply := strconv.AppendUint(append(b.reply[:0], c.replies...), d.first+uint64(i), 10)
	b.reply = reply
	d.launch(i) // before it is published, since the answer may come sooner than we go on
	msg, err := b.message(&d.events[i], string(reply))
	if err == nil {
		err = sizeError(c.nc.PublishMsg(msg), msg, c.nc)
	}
	if err != nil && !relay.IsPermanent(err) {
		err = c.spoil(ctx, err)
	}
	if err != nil {
		d.settle(uint64(i), err)
	}
}

// full reports whether the messages in flight have reached a bound, and returns half of
// their number. Waiting for half saves waking the other side for every single one.
func (d *delivery) full() (half int, full bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.inFlight / 2, d.inFlight >= maxInFlight || d.bytes >= maxInFlightBytes
}

func (d *delivery) stopped() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.failure != nil
}

func (d *delivery) launch(i int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.sent = i + 1
	d.inFlight++
	d.bytes += len(d.events[i].Body)
}

// settle records the answer to event i; if there are several, the first one counts.
func (d *delivery) settle(i uint64, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if i >= uint64(d.sent) || d.settled[i] {
		return
	}
	d.settled[i] = true
	d.inFlight--
	d.bytes -= len(d.events[i].Body)
	if err != nil {
		if d.refused == nil {
			d.refused = map[int]error{}
		}
		d.refused[int(i)] = err
		if d.failure == nil && !relay.IsPermanent(err) {
			d.failure = err
		}
	}
	d.check()
}

// stop ends the delivery without waiting for messages in flight.
func (d *delivery) stop(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.failure == nil {
		d.failure = err
	}
	d.inFlight = 0
	d.check()
}

// check wakes the publisher when it need not wait any longer. The caller holds d.mu.
func (d *delivery) check() {
	if d.inFlight > d.target {
		return
	}
	d.target = -1
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

// wait returns true when no more than target are in flight, and false if the delivery
// cannot go on; d.failure says why.
func (c *connection) wait(ctx context.Context, d *delivery, target int) bool {
	for !d.reached(target) {
		select {
		case <-d.wake:
		case <-ctx.Done():
			d.stop(context.Cause(ctx))
		case <-c.lost:
			d.stop(c.spoil(ctx, c.lostError()))
		}
	}
	return !d.stopped()
}

// reached reports whether target is reached; if not, d.wake is filled once it is.
func (d *delivery) reached(target int) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.inFlight <= target {
		d.target = -1
		return true
	}
	d.target = target
	return false
}

// outcome returns the error that names the unacknowledged events. Messages that have no answer
// yet leave the connection spoilt.
func (c *connection) outcome(d *delivery, b *builder) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if errors.Is(d.failure, errNoStream) {
		c.spoilt = true // a new connection creates the stream, if configured
	}
	var failures []relay.Failure
	for i := range d.events {
		if err := d.result(i, b); err != nil {
			failures = append(failures, relay.Failure{Index: i, Err: err})
		}
		c.spoilt = c.spoilt || i < d.sent && !d.settled[i]
	}
	return relay.Outcome(len(d.events), failures)
}

// result returns the error of event i, or nil. The caller holds d.mu.
func (d *delivery) result(i int, b *builder) error {
	switch err := d.refused[i]; {
	case errors.Is(err, errNoStream):
		subject, _ := b.subject(&d.events[i])
		return fmt.Errorf("publish to %s: %w", subject, err)
	case d.settled[i]:
		return err
	case i < d.sent:
		return fmt.Errorf("no acknowledgement: %w", d.failure)
	}
	return fmt.Errorf("not published: %w", d.failure)
}
