package relaytest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/relay"
)

func (s *subject) needDown(t *testing.T) {
	t.Helper()
	if s.Down == nil || s.Up == nil {
		t.Skip("the harness cannot take the destination down")
	}
}

func (s *subject) needStall(t *testing.T) {
	t.Helper()
	if s.Stall == nil {
		t.Skip("the harness cannot stall the destination")
	}
}

// testDown takes the destination down twice: before the sink's first delivery, and after it has
// delivered.
func testDown(t *testing.T, s *subject) {
	s.needDown(t)
	all := Events(300)
	for from := 0; from < len(all); from += 150 {
		s.Down()
		s.requireRetryable(t, all[from:from+100])
		s.Up()
		s.deliverUntilDone(t, all[from:from+100])
		s.mustDeliver(t, all[from+100:from+150])
	}
	s.requireArrived(t, all)
}

func (s *subject) requireRetryable(t *testing.T, events []relay.Event) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	within(t, 2*time.Second+patience, "Deliver to a destination that is down", func() {
		err := s.deliver(ctx, t, events)
		require.Error(t, err)
		assert.False(t, relay.IsPermanent(err), "an outage is not permanent: %v", err)
	})
}

// testNothingLate gives up a delivery while the destination is down. Once it is back, only
// later deliveries may arrive.
func testNothingLate(t *testing.T, s *subject) {
	s.needDown(t)
	first, never, last := Events(10), Events(100, From(10)), Events(10, From(110))
	s.mustDeliver(t, first)
	s.Down()
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	require.Error(t, s.deliver(ctx, t, never))
	s.Up()
	s.deliverUntilDone(t, last)
	s.requireArrived(t, append(first, last...))
}

func testStalled(t *testing.T, s *subject) {
	s.needStall(t)
	s.mustDeliver(t, Events(1))
	s.Stall()
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	within(t, 300*time.Millisecond+patience, "Deliver to a stalled destination", func() {
		err := s.deliver(ctx, t, Events(5000, From(1)))
		require.Error(t, err)
		assert.False(t, relay.IsPermanent(err), "silence is not permanent: %v", err)
	})
	within(t, patience, "Close of a stalled sink", func() { _ = s.Sink.Close() })
}

func testCloseWhileStalled(t *testing.T, s *subject) {
	s.needStall(t)
	s.mustDeliver(t, Events(1))
	s.Stall()
	delivered := make(chan error, 1)
	go func() { delivered <- s.deliver(t.Context(), t, Events(100, From(1))) }()
	select {
	case err := <-delivered:
		require.Error(t, err, "acknowledged by a destination that does not answer")
	case <-time.After(200 * time.Millisecond): // it is under way
	}
	within(t, patience, "Close while a delivery is under way", func() { _ = s.Sink.Close() })
	select {
	case err := <-delivered:
		require.Error(t, err)
	case <-time.After(patience):
		t.Fatal("Deliver went on after Close")
	}
}

// testRefused lets the destination refuse the first, a middle and the last event of a delivery.
// All others must arrive: at once if the sink names the refused ones, and otherwise one by one,
// as a pump would find them.
func testRefused(t *testing.T, s *subject) {
	if s.Refuse == nil {
		t.Skip("the harness cannot have an event refused")
	}
	events := Events(40)
	refused := map[int]bool{0: true, 17: true, 39: true}
	var taken []relay.Event
	for i := range events {
		if refused[i] {
			s.Refuse(&events[i])
		} else {
			taken = append(taken, events[i])
		}
	}
	s.requireRefused(t, events, refused)
	s.requireArrived(t, taken)
	single := events[17:18]
	require.True(t, isRefusal(s.deliver(t.Context(), t, single)), "the refused event alone")
	s.requireArrived(t, taken)
}

func (s *subject) requireRefused(t *testing.T, events []relay.Event, refused map[int]bool) {
	t.Helper()
	err := s.deliver(t.Context(), t, events)
	require.Error(t, err)
	var partial *relay.PartialError
	if !errors.As(err, &partial) {
		require.True(t, relay.IsPermanent(err), "neither partial nor permanent: %v", err)
		s.requireRefusedSingly(t, events, refused)
		return
	}
	named := map[int]bool{}
	for _, f := range partial.Failures {
		named[f.Index] = true
		assert.True(t, relay.IsPermanent(f.Err), "event %d: %v", f.Index, f.Err)
	}
	require.Equal(t, refused, named, "the events named")
}

func (s *subject) requireRefusedSingly(t *testing.T, events []relay.Event, refused map[int]bool) {
	t.Helper()
	for i := range events {
		err := s.deliver(t.Context(), t, events[i:i+1])
		if refused[i] {
			require.True(t, isRefusal(err), "event %d should be refused: %v", i, err)
		} else {
			require.NoError(t, err, "event %d", i)
		}
	}
}

// isRefusal reports whether err refuses a delivery of one event for good.
func isRefusal(err error) bool {
	var partial *relay.PartialError
	if errors.As(err, &partial) {
		return len(partial.Failures) == 1 && relay.IsPermanent(partial.Failures[0].Err)
	}
	return relay.IsPermanent(err)
}
