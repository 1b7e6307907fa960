package relaytest_test

import (
	"errors"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/relay"
	"github.com/auditrelay/auditrelay/relay/relaytest"
)

// The fake keeps the contract too, in both ways of refusing.
func TestSinkKeepsTheContract(t *testing.T) {
	t.Parallel()
	for name, refusing := range map[string]func(ids ...string) func(int, []relay.Event) relaytest.Outcome{
		"whole": relaytest.Refusing,
		"partial": func(ids ...string) func(int, []relay.Event) relaytest.Outcome {
			return relaytest.Naming(errRefused, ids...)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			relaytest.Run(t, relaytest.Harness{New: func(*testing.T) relaytest.Destination { return fake(refusing) }})
		})
	}
}

var errRefused = relay.Permanent(errors.New("refused"))

func fake(refusing func(ids ...string) func(int, []relay.Event) relaytest.Outcome) relaytest.Destination {
	var down, stalled atomic.Bool
	var refused []string
	sink := &relaytest.Sink{Respond: func(call int, events []relay.Event) relaytest.Outcome {
		switch {
		case stalled.Load():
			return relaytest.Outcome{Hang: true}
		case down.Load():
			return relaytest.Outcome{Err: errors.New("down")}
		}
		return refusing(refused...)(call, events)
	}}
	return relaytest.Destination{
		Sink:    sink,
		Arrived: func() []relaytest.Arrival { return arrivals(sink.Arrived()) },
		Secrets: []string{"hunter2"},
		Down:    func() { down.Store(true) },
		Up:      func() { down.Store(false) },
		Stall:   func() { stalled.Store(true) },
		Refuse:  func(e *relay.Event) { refused = append(refused, e.ID) },
	}
}

func arrivals(events []relay.Event) []relaytest.Arrival {
	out := make([]relaytest.Arrival, len(events))
	for i := range events {
		e := &events[i]
		out[i] = relaytest.Arrival{ID: e.ID, Body: e.Body, Attributes: map[string]string{"datacontenttype": e.ContentType}}
		for name, value := range e.Attributes {
			out[i].Attributes[name] = value
		}
	}
	return out
}

func TestEventsAreDeterministicAndDistinct(t *testing.T) {
	t.Parallel()
	events := relaytest.Events(1000, relaytest.Environments("a/b", "c/d"))
	assert.Equal(t, events[400:500], relaytest.Events(100, relaytest.From(400), relaytest.Environments("a/b", "c/d")))
	ids := map[string]bool{}
	for i := range events {
		ids[events[i].ID] = true
		assert.Len(t, events[i].Body, 600)
	}
	assert.Len(t, ids, 1000)
}

func TestSourceYieldsBatchesAndWaits(t *testing.T) {
	t.Parallel()
	events := relaytest.Events(10)
	s := relaytest.NewSource(events[:4], events[4:])
	var got []relay.Event
	for range 2 {
		b, err := s.Next(t.Context())
		require.NoError(t, err)
		got = append(got, b.Events...)
		require.Equal(t, relay.Position(len(got)), b.Position)
		require.NoError(t, s.Ack(t.Context(), b.Position))
	}
	assert.True(t, slices.EqualFunc(events, got, func(a, b relay.Event) bool { return a.ID == b.ID }))
	assert.Equal(t, relay.Position(10), s.Acked())
	go s.Close()
	_, err := s.Next(t.Context())
	assert.ErrorIs(t, err, relaytest.ErrClosed)
}
