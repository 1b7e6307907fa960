package traces

import (
	"cmp"
	"context"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/auditrelay/auditrelay/relay"
)

// mostWaiting bounds the traced pushes that wait for one sink. Beyond it, the oldest are
// forgotten.
const mostWaiting = 1000

// waiting is a committed push, and its delivery to one sink.
type waiting struct {
	push      *Push
	record    uint64
	committed time.Time
	read      time.Time // when a batch with its record was handed to the sink; zero if it was not yet
}

// deliveries are the traced pushes on their way to one sink. It is a relay.Source, and
// sees the sink's acknowledgements.
type deliveries struct {
	relay.Source
	sink   string
	record func(relay.Position) uint64

	mu      sync.Mutex
	waiting []waiting // roughly in the order of their commits; guarded by mu
	acked   uint64    // the newest delivered record; guarded by mu
}

// Source returns a source with the same batches that makes the spans of their delivery. record
// returns the record of a position.
func (t *Tracer) Source(sink string, source relay.Source, record func(relay.Position) uint64) relay.Source {
	if t == nil {
		return source
	}
	d := &deliveries{Source: source, sink: sink, record: record}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sinks = append(t.sinks, d)
	return d
}

func (t *Tracer) await(w *waiting) {
	t.mu.Lock()
	sinks := t.sinks
	t.mu.Unlock()
	for _, d := range sinks {
		d.await(*w)
	}
}

func (d *deliveries) await(w waiting) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if w.record <= d.acked { // the sink was quicker than the answer to the sender
		d.delivered(w)
		return
	}
	if len(d.waiting) == mostWaiting {
		d.waiting = d.waiting[:copy(d.waiting, d.waiting[1:])]
	}
	d.waiting = append(d.waiting, w)
}

// Next implements [relay.Source].
func (d *deliveries) Next(ctx context.Context) (relay.Batch, error) {
	batch, err := d.Source.Next(ctx)
	if err != nil {
		return batch, err
	}
	through, now := d.record(batch.Position), time.Now()
	d.mu.Lock()
	defer d.mu.Unlock()
	for i := range d.waiting {
		if w := &d.waiting[i]; w.record <= through && w.read.IsZero() {
			w.read = now
		}
	}
	return batch, nil
}

// Ack implements [relay.Source].
func (d *deliveries) Ack(ctx context.Context, p relay.Position) error {
	if err := d.Source.Ack(ctx, p); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.acked = d.record(p)
	rest := d.waiting[:0]
	for _, w := range d.waiting {
		if w.record <= d.acked {
			d.delivered(w)
		} else {
			rest = append(rest, w)
		}
	}
	clear(d.waiting[len(rest):])
	d.waiting = rest
	return nil
}

// delivered makes the span of a delivery at its end.
func (d *deliveries) delivered(w waiting) {
	begun := cmp.Or(w.read, w.committed)
	w.push.child("deliver "+d.sink, begun, time.Now(), trace.SpanKindProducer,
		attribute.String("auditrelay.sink", d.sink), attribute.Float64("auditrelay.journal_seconds", begun.Sub(w.committed).Seconds()))
}
