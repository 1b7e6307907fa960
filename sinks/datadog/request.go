package datadog

import (
	"context"
	"errors"
	"time"

	"github.com/auditrelay/auditrelay/relay"
)

// request is a run of a delivery's events that is sent at once, or in halves after a refusal.
type request struct {
	sink *Sink
	body *body
	of   []int // the event of each entry

	// The outcome, once done is closed.
	done    chan struct{}
	acked   []int // indexes of events
	refused []relay.Failure
	err     error // a retryable one: events in neither list may be sent again
}

func (s *Sink) newRequest() *request {
	b, ok := s.bodies.Get().(*body)
	if !ok {
		b = &body{encoder: s.maker.encoder(), compressor: s.compressor}
	}
	return &request{sink: s, body: b, done: make(chan struct{})}
}

// release keeps the body's memory for a later request.
func (r *request) release() {
	if r.body.reset() {
		r.sink.bodies.Put(r.body)
	}
}

// add encodes event i.
func (r *request) add(i int, e *relay.Event, now time.Time) error {
	err := r.body.add(e, now)
	if err == nil {
		r.of = append(r.of, i)
	}
	return err
}

// takeFrom moves all entries after the first n from another request.
func (r *request) takeFrom(o *request, n int) {
	for i, event := range o.of[n:] {
		r.body.addText(o.body.entry(n + i))
		r.of = append(r.of, event)
	}
	o.of = o.of[:n]
}

// send sends the packed entries from low to high. If the intake refuses them, the halves
// are sent one after the other.
func (r *request) send(ctx context.Context, packed []byte, low, high int) error {
	err := r.sink.submit(ctx, packed)
	var refused *refusal
	switch {
	case err == nil:
		r.acked = append(r.acked, r.of[low:high]...)
		return nil
	case !errors.As(err, &refused):
		return err
	case high-low == 1:
		r.refused = append(r.refused, relay.Failure{Index: r.of[low], Err: err})
		return nil
	}
	half := low + (high-low)/2
	if err := r.send(ctx, r.body.pack(low, half), low, half); err != nil {
		return err
	}
	return r.send(ctx, r.body.pack(half, high), half, high)
}
