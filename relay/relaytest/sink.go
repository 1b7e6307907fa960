package relaytest

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/auditrelay/auditrelay/relay"
)

// ErrClosed is the error of a closed [Sink] or [Source].
var ErrClosed = errors.New("closed")

// Outcome is the fate of one delivery to a [Sink].
type Outcome struct {
	// Latency is how long a delivery takes before anything else happens.
	Latency time.Duration
	// Hang gives no answer: Deliver returns when its context ends, or at Close.
	Hang bool
	// Err is what Deliver returns. With nil all events are taken, with a *relay.PartialError
	// all except the failures, and with any other error none.
	Err error
	// Taken takes all events whatever Err is, as when an acknowledgement is lost.
	Taken bool
}

// Sink is an obedient destination in memory. Its zero value takes everything at once. It is
// safe for concurrent use, and can be used in a testing/synctest bubble.
type Sink struct {
	// Respond, if set, decides the outcome of each delivery; call counts from 0.
	Respond func(call int, events []relay.Event) Outcome

	mu       sync.Mutex // guards the fields below
	arrived  []relay.Event
	calls    [][]relay.Event
	inFlight int
	overlaps int
	closing  chan struct{}
	closed   bool
}

// Script answers the deliveries with the outcomes in turn, and takes all later ones. It is for
// [Sink.Respond].
func Script(outcomes ...Outcome) func(int, []relay.Event) Outcome {
	return func(call int, _ []relay.Event) Outcome {
		if call < len(outcomes) {
			return outcomes[call]
		}
		return Outcome{}
	}
}

// Refusing answers a delivery that contains one of the ids with a permanent error for the
// whole, like a sink that cannot name the event. It is for [Sink.Respond].
func Refusing(ids ...string) func(int, []relay.Event) Outcome {
	return func(_ int, events []relay.Event) Outcome {
		for i := range events {
			if slices.Contains(ids, events[i].ID) {
				return Outcome{Err: relay.Permanent(errors.New("an event is refused"))}
			}
		}
		return Outcome{}
	}
}

// Naming answers a delivery that contains some of the ids with a partial error that names just
// those, each failing with err. It is for [Sink.Respond].
func Naming(err error, ids ...string) func(int, []relay.Event) Outcome {
	return func(_ int, events []relay.Event) Outcome {
		var failures []relay.Failure
		for i := range events {
			if slices.Contains(ids, events[i].ID) {
				failures = append(failures, relay.Failure{Index: i, Err: err})
			}
		}
		if failures == nil {
			return Outcome{}
		}
		return Outcome{Err: &relay.PartialError{Failures: failures}}
	}
}

// Deliver implements relay.Sink.
func (s *Sink) Deliver(ctx context.Context, events []relay.Event) error {
	outcome, closing, err := s.begin(events)
	if err != nil {
		return err
	}
	defer s.end()
	if err := wait(ctx, outcome, closing); err != nil {
		return err
	}
	s.take(outcome, events)
	return outcome.Err
}

func (s *Sink) begin(events []relay.Event) (Outcome, <-chan struct{}, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return Outcome{}, nil, ErrClosed
	}
	if s.closing == nil {
		s.closing = make(chan struct{})
	}
	call := len(s.calls)
	s.calls = append(s.calls, slices.Clone(events))
	if s.inFlight++; s.inFlight > 1 {
		s.overlaps++
	}
	if s.Respond == nil {
		return Outcome{}, s.closing, nil
	}
	return s.Respond(call, events), s.closing, nil
}

func (s *Sink) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.inFlight--
}

func wait(ctx context.Context, o Outcome, closing <-chan struct{}) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	var elapsed <-chan time.Time
	switch {
	case o.Hang: // a nil channel never answers
	case o.Latency > 0:
		timer := time.NewTimer(o.Latency)
		defer timer.Stop()
		elapsed = timer.C
	default:
		return nil
	}
	select {
	case <-elapsed:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-closing:
		return ErrClosed
	}
}

func (s *Sink) take(o Outcome, events []relay.Event) {
	var partial *relay.PartialError
	failed := map[int]bool{}
	if errors.As(o.Err, &partial) {
		for _, f := range partial.Failures {
			failed[f.Index] = true
		}
	} else if o.Err != nil && !o.Taken {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range events {
		if o.Taken || !failed[i] {
			s.arrived = append(s.arrived, events[i])
		}
	}
}

// Close implements relay.Sink.
func (s *Sink) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return ErrClosed
	}
	s.closed = true
	if s.closing != nil {
		close(s.closing)
	}
	return nil
}

// Arrived returns the events taken so far, in the order of their arrival.
func (s *Sink) Arrived() []relay.Event {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.arrived)
}

// Calls returns the events of each Deliver, refused or not.
func (s *Sink) Calls() [][]relay.Event {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.calls)
}

// Overlaps counts the calls of Deliver that were made during another one. A Pump must never
// make one.
func (s *Sink) Overlaps() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.overlaps
}

// Closed reports whether Close was called.
func (s *Sink) Closed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed
}
