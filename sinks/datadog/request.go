package datadog

import (
	"bytes"
	"context"
	"errors"

	"github.com/auditrelay/auditrelay/relay"
)

// request is a run of a delivery's events that is sent at once, or in halves after a refusal. Its
// memory is used again by later requests, and by later deliveries.
type request struct {
	sink    *Sink
	encoder *encoder
	text    []byte       // a JSON array of entries, each with a comma after it
	ends    []int        // where each entry ends in text, with its comma
	of      []int        // the event of each entry
	packed  bytes.Buffer // the bytes that were compressed last

	// The outcome, once it was sent.
	acked   []int // indexes of events
	refused []relay.Failure
}

func (s *Sink) newRequest() *request {
	r, ok := s.requests.Get().(*request)
	if !ok {
		r = &request{sink: s, encoder: s.maker.encoder()}
	}
	r.text = append(r.text[:0], '[')
	r.ends, r.of, r.acked, r.refused = r.ends[:0], r.of[:0], r.acked[:0], r.refused[:0]
	return r
}

// maxKept is the size of the largest text whose memory is kept. An entry that is too large may
// take more while it is encoded.
const maxKept = 2 * maxRequestBytes

// release keeps the memory for a later request.
func (r *request) release() {
	clear(r.refused)
	if cap(r.text) <= maxKept {
		r.sink.requests.Put(r)
	}
}

// start returns where entry i begins in text.
func (r *request) start(i int) int {
	if i == 0 {
		return len("[")
	}
	return r.ends[i-1]
}

// pack returns the array of the entries from low to high in the form in which it is sent, valid
// until the next call. Later calls must not reach beyond the range of earlier ones, since the
// brackets replace commas.
func (r *request) pack(low, high int) []byte {
	text := r.text[r.start(low)-1 : r.start(high)]
	text[0], text[len(text)-1] = '[', ']'
	return r.sink.compressor.compress(&r.packed, text)
}

// send sends the packed entries from low to high. If the intake refuses them, the halves
// are sent one after the other. An error is a retryable one: events in neither list may be sent
// again.
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
	if err := r.send(ctx, r.pack(low, half), low, half); err != nil {
		return err
	}
	return r.send(ctx, r.pack(half, high), half, high)
}
