package relaytest

import (
	"context"
	"slices"
	"sync"

	"github.com/auditrelay/auditrelay/relay"
)

// Source yields batches from memory. Position p comes after the p-th event that was pushed.
// Make it with [NewSource]; it is safe for concurrent use.
type Source struct {
	mu      sync.Mutex // guards the fields below
	batches []relay.Batch
	next    int // index into batches
	last    relay.Position
	acked   relay.Position
	acks    []relay.Position
	nextErr []error
	ackErr  []error
	closed  bool
	changed chan struct{} // closed and replaced at Push and Close
}

// NewSource makes a source of these batches. After them it waits for Push.
func NewSource(batches ...[]relay.Event) *Source {
	s := &Source{changed: make(chan struct{})}
	for _, events := range batches {
		s.Push(events)
	}
	return s
}

// Push appends a batch.
func (s *Source) Push(events []relay.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last += relay.Position(len(events))
	s.batches = append(s.batches, relay.Batch{Events: events, Position: s.last})
	s.wake()
}

// Close makes Next return [ErrClosed] once all batches are read.
func (s *Source) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	s.wake()
}

func (s *Source) wake() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// Next implements relay.Source.
func (s *Source) Next(ctx context.Context) (relay.Batch, error) {
	for {
		b, wait, err := s.poll()
		if wait == nil {
			return b, err
		}
		select {
		case <-ctx.Done():
			return relay.Batch{}, ctx.Err()
		case <-wait:
		}
	}
}

// poll returns a batch, an error, or a channel to wait for.
func (s *Source) poll() (relay.Batch, <-chan struct{}, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := shift(&s.nextErr); err != nil {
		return relay.Batch{}, nil, err
	}
	if s.next < len(s.batches) {
		s.next++
		return s.batches[s.next-1], nil, nil
	}
	if s.closed {
		return relay.Batch{}, nil, ErrClosed
	}
	return relay.Batch{}, s.changed, nil
}

// Ack implements relay.Source.
func (s *Source) Ack(ctx context.Context, p relay.Position) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := shift(&s.ackErr); err != nil {
		return err
	}
	s.acks = append(s.acks, p)
	s.acked = max(s.acked, p)
	return nil
}

// FailNext makes the next calls of Next fail with errs, one each.
func (s *Source) FailNext(errs ...error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.nextErr = append(s.nextErr, errs...)
}

// FailAck makes the next calls of Ack fail with errs, one each.
func (s *Source) FailAck(errs ...error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ackErr = append(s.ackErr, errs...)
}

// Acked returns the largest position that was acknowledged.
func (s *Source) Acked() relay.Position {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.acked
}

// Acks returns every position that was acknowledged, in the order of the calls.
func (s *Source) Acks() []relay.Position {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.acks)
}

func shift(errs *[]error) error {
	if len(*errs) == 0 {
		return nil
	}
	err := (*errs)[0]
	*errs = (*errs)[1:]
	return err
}
