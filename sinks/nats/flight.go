package nats

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"

	"github.com/auditrelay/auditrelay/relay"
)

// What may be published and not yet acknowledged. A JetStream server queues
// 10,000 messages or 128 MiB a stream, and refuses more.
const (
	maxInFlight      = 4096
	maxInFlightBytes = 8 << 20
)

// flight is one delivery under way, between the one that publishes and the
// callbacks that acknowledge.
type flight struct {
	events []relay.Event
	first  uint64        // the number of events[0]
	wake   chan struct{} // holds one; filled when what the publisher waits for has come

	mu       sync.Mutex // guards what follows
	settled  []bool     // by index: acknowledged or refused
	refused  map[int]error
	sent     int // events published, from the first; refused ones count
	inFlight int
	bytes    int   // of the bodies in flight
	target   int   // wake when inFlight is no more than this, -1: never
	failure  error // what stopped the delivery; nil while it goes on
}

func (s *session) deliverAcknowledged(ctx context.Context, events []relay.Event, b *builder) error {
	f := &flight{
		events: events, first: s.next, settled: make([]bool, len(events)),
		wake: make(chan struct{}, 1), target: -1,
	}
	s.next += uint64(len(events))
	s.flight.Store(f)
	defer s.flight.Store(nil)
	for i := range events {
		if half, full := f.full(); full && !s.wait(ctx, f, half) {
			break
		}
		s.publish(ctx, f, i, b)
		if f.stopped() {
			break
		}
	}
	s.wait(ctx, f, 0)
	return s.outcome(f, b)
}

func (s *session) publish(ctx context.Context, f *flight, i int, b *builder) {
	reply := strconv.AppendUint(append(b.reply[:0], s.replies...), f.first+uint64(i), 10)
	b.reply = reply
	f.launch(i) // before it is published: the answer may be faster than we are
	msg, err := b.message(&f.events[i], string(reply))
	if err == nil {
		err = sizeError(s.nc.PublishMsg(msg), msg, s.nc)
	}
	if err != nil && !relay.IsPermanent(err) {
		err = s.spoil(ctx, err)
	}
	if err != nil {
		f.settle(uint64(i), err)
	}
}

// full reports whether no further event may be put in flight, and half of
// those that are: to wait for so few spares the two sides waking each other
// for every single one.
func (f *flight) full() (half int, full bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.inFlight / 2, f.inFlight >= maxInFlight || f.bytes >= maxInFlightBytes
}

func (f *flight) stopped() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.failure != nil
}

func (f *flight) launch(i int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.sent = i + 1
	f.inFlight++
	f.bytes += len(f.events[i].Body)
}

// settle records the answer to event i, the first one if there are several.
func (f *flight) settle(i uint64, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if i >= uint64(f.sent) || f.settled[i] {
		return
	}
	f.settled[i] = true
	f.inFlight--
	f.bytes -= len(f.events[i].Body)
	if err != nil {
		if f.refused == nil {
			f.refused = map[int]error{}
		}
		f.refused[int(i)] = err
		if f.failure == nil && !relay.IsPermanent(err) {
			f.failure = err
		}
	}
	f.check()
}

// stop ends the delivery: what is in flight is not waited for.
func (f *flight) stop(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.failure == nil {
		f.failure = err
	}
	f.inFlight = 0
	f.check()
}

// check wakes the publisher where it need not wait any longer. f.mu is held.
func (f *flight) check() {
	if f.inFlight > f.target {
		return
	}
	f.target = -1
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// wait returns true when no more than target are in flight, and false where
// the delivery cannot go on, which is then f.failure.
func (s *session) wait(ctx context.Context, f *flight, target int) bool {
	for !f.reached(target) {
		select {
		case <-f.wake:
		case <-ctx.Done():
			f.stop(context.Cause(ctx))
		case <-s.lost:
			f.stop(s.spoil(ctx, s.lostError()))
		}
	}
	return !f.stopped()
}

// reached reports whether target is reached, or else has f.wake filled when it is.
func (f *flight) reached(target int) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.inFlight <= target {
		f.target = -1
		return true
	}
	f.target = target
	return false
}

// outcome names what was not acknowledged. Whatever has no answer yet leaves
// the session spoilt.
func (s *session) outcome(f *flight, b *builder) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if errors.Is(f.failure, errNoStream) {
		s.spoilt = true // a new session creates the stream, where it is told to
	}
	var failures []relay.Failure
	answered := 0 // acknowledged, or refused for good
	for i := range f.events {
		err := f.result(i, b)
		if err == nil || relay.IsPermanent(err) {
			answered++
		}
		if err != nil {
			failures = append(failures, relay.Failure{Index: i, Err: err})
		}
		s.spoilt = s.spoilt || i < f.sent && !f.settled[i]
	}
	switch {
	case len(failures) == 0:
		return nil
	case answered == 0:
		return failures[0].Err
	}
	return &relay.PartialError{Failures: failures}
}

// result is what became of event i. f.mu is held.
func (f *flight) result(i int, b *builder) error {
	switch err := f.refused[i]; {
	case errors.Is(err, errNoStream):
		subject, _ := b.subject(&f.events[i])
		return fmt.Errorf("publish to %s: %w", subject, err)
	case f.settled[i]:
		return err
	case i < f.sent:
		return fmt.Errorf("no acknowledgement: %w", f.failure)
	}
	return fmt.Errorf("not published: %w", f.failure)
}
