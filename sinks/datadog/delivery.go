package datadog

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/DataDog/datadog-api-client-go/v2/api/datadogV2"

	"github.com/auditrelay/auditrelay/relay"
	"github.com/auditrelay/auditrelay/sinks/datadog/entry"
)

// delivery is one Deliver.
type delivery struct {
	sink     *Sink
	settled  []bool // by event: it is acknowledged, or among the failures
	failures []relay.Failure
	acked    bool // some event is acknowledged

	// The request that is being filled.
	items []datadogV2.HTTPLogItem
	of    []int // the event of each item
	size  int   // of the request's body at most, before compression
}

// bodyBrackets is what a request has beside its entries: the brackets of the
// array, and the line break behind it.
const bodyBrackets = len("[]\n")

// add puts an entry into the request, after it has sent the one before where
// that is full.
func (d *delivery) add(ctx context.Context, i int, e entry.Entry) error {
	size := e.Size + len(",")
	if len(d.items) == entry.MaxEntries || bodyBrackets+d.size+size > entry.MaxRequestBytes {
		if err := d.flush(ctx); err != nil {
			return err
		}
	}
	if d.items == nil {
		most := min(len(d.settled)-i, entry.MaxEntries)
		d.items, d.of = make([]datadogV2.HTTPLogItem, 0, most), make([]int, 0, most)
	}
	d.items = append(d.items, itemOf(e))
	d.of = append(d.of, i)
	d.size += size
	return nil
}

func itemOf(e entry.Entry) datadogV2.HTTPLogItem {
	return datadogV2.HTTPLogItem{
		Message: e.Message, Ddsource: e.Source, Service: e.Service, Hostname: e.Hostname, Ddtags: e.Tags,
		AdditionalProperties: e.Attributes,
	}
}

// flush sends the request. An error is one that may pass: nothing more of the
// delivery may be sent.
func (d *delivery) flush(ctx context.Context) error {
	if len(d.items) == 0 {
		return nil
	}
	err := d.send(ctx, 0, len(d.items))
	clear(d.items)
	d.items, d.of, d.size = d.items[:0], d.of[:0], 0
	return err
}

// send sends the items from low to high. Where the intake refuses them, the
// halves are sent one after the other.
func (d *delivery) send(ctx context.Context, low, high int) error {
	err := d.sink.submit(ctx, d.items[low:high])
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
