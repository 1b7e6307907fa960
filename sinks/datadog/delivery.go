package datadog

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/auditrelay/auditrelay/relay"
	"github.com/auditrelay/auditrelay/sinks/datadog/entry"
)

// delivery is one Deliver.
type delivery struct {
	sink     *Sink
	settled  []bool // by event: it is acknowledged, or among the failures
	failures []relay.Failure
	acked    bool // some event is acknowledged

	body *body // the request that is being filled
	of   []int // the event of each of its entries
}

// add puts the entry of event i into the request, and sends that once it is full.
func (d *delivery) add(ctx context.Context, i int, e *relay.Event, now time.Time) error {
	if err := d.body.add(d.sink.maker, e, now); err != nil {
		d.refuse(i, err)
		return nil
	}
	d.of = append(d.of, i)
	switch n := len(d.of); {
	case n > 1 && d.body.size() > entry.MaxRequestBytes:
		return d.flush(ctx, n-1)
	case n == entry.MaxEntries:
		return d.flush(ctx, n)
	}
	return nil
}

// flush sends the first n entries and takes them out of the request. An error is one
// that may pass: nothing more of the delivery may be sent.
func (d *delivery) flush(ctx context.Context, n int) error {
	if n == 0 {
		return nil
	}
	err := d.send(ctx, 0, n)
	d.body.drop(n)
	d.of = d.of[:copy(d.of, d.of[n:])]
	return err
}

// send sends the entries from low to high. Where the intake refuses them, the
// halves are sent one after the other.
func (d *delivery) send(ctx context.Context, low, high int) error {
	err := d.sink.submit(ctx, d.body.pack(low, high))
	var refused *refusal
	switch {
	case err == nil:
		d.acked = true
		for _, i := range d.of[low:high] {
			d.settled[i] = true
		}
		return nil
	case !errors.As(err, &refused):
		return err
	case high-low == 1:
		d.refuse(d.of[low], err)
		return nil
	}
	half := low + (high-low)/2
	if err := d.send(ctx, low, half); err != nil {
		return err
	}
	return d.send(ctx, half, high)
}

// refuse settles an event that the intake does not take, or not whole.
func (d *delivery) refuse(i int, err error) {
	d.fail(i, relay.Permanent(err))
}

func (d *delivery) fail(i int, err error) {
	d.failures = append(d.failures, relay.Failure{Index: i, Err: err})
	d.settled[i] = true
}

// stopped is the outcome where err kept the delivery from being ended.
func (d *delivery) stopped(err error) error {
	if !d.acked && len(d.failures) == 0 {
		return err
	}
	for i, settled := range d.settled {
		if !settled {
			d.fail(i, err)
		}
	}
	return d.outcome()
}

func (d *delivery) outcome() error {
	if len(d.failures) == 0 {
		return nil
	}
	slices.SortFunc(d.failures, func(a, b relay.Failure) int { return cmp.Compare(a.Index, b.Index) })
	return &relay.PartialError{Failures: d.failures}
}
