package console_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/control/console"
	"github.com/auditrelay/auditrelay/internal/journal/record"
	"github.com/auditrelay/auditrelay/internal/testbed/waiting"
	"github.com/auditrelay/auditrelay/relay"
)

// crowd appends n events in one record.
func (s *stage) crowd(name string, n int) {
	s.t.Helper()
	var b record.Batch
	for i := range n {
		e := eventOf(fmt.Sprint(name, "-", i), "event_log.login", `{"n":`+fmt.Sprint(i)+`}`)
		b.AddEvent(&e)
	}
	require.NoError(s.t, s.journal.Append(s.t.Context(), &b))
}

// However many events pass, a sample looks at few of them, and counts the others.
func TestASampleIsBounded(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	one := s.tap(console.Tap{Sample: 10})
	rare := s.tap(console.Tap{Sample: 10, Match: `body.n == -1`})
	go func() {
		for {
			select {
			case <-one.events:
			case <-t.Context().Done():
				return
			}
		}
	}()
	s.crowd("many", 20_000)
	var some, none console.TapCounts
	waiting.Until(t, func() bool { some = <-one.counts; return some.SkippedRecords > 0 }, "what passed unseen is counted")
	waiting.Until(t, func() bool { none = <-rare.counts; return none.SkippedRecords > 0 })
	assert.Positive(t, some.Shown)
	assert.Positive(t, some.Dropped)
	assert.Less(t, some.Shown, int64(1000))
	assert.Less(t, none.Other, int64(10_000), "an expression that nothing fits was asked for most events")
	require.ErrorIs(t, one.end(), context.Canceled)
	require.ErrorIs(t, rare.end(), context.Canceled)
}

// At little load a sample has everything.
func TestASampleOfFewEventsHasAllOfThem(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	x := s.tap(console.Tap{Sample: 50})
	var want []string
	for i := range 20 {
		want = append(want, fmt.Sprint(i))
		s.push([]relay.Event{eventOf(want[i], "event_log.login", `{}`)})
		assert.Equal(t, want[i], (<-x.events).ID)
	}
	large := eventOf("large", "event_log.login", `{"x":"`+strings.Repeat("x", 1_000_000)+`"}`)
	s.push([]relay.Event{large})
	assert.Len(t, (<-x.events).Body, len(large.Body), "it is shown, however large")
	require.ErrorIs(t, x.end(), context.Canceled)
}

// A page that is closed gives its place back, and one that does not read has others served.
func TestSamplesAreBoundedAndGiveTheirPlacesBack(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	var open []*tapped
	for range 16 {
		open = append(open, s.tap(console.Tap{Sample: 50}))
	}
	s.crowd("nobody reads", 5000)
	require.ErrorContains(t, s.Tap(t.Context(), console.Tap{Newest: 1}, nil, nil), "followed at 16 places already")
	whole := s.tap(console.Tap{})
	s.push([]relay.Event{eventOf("last", "event_log.login", `{}`)})
	assert.Equal(t, "last", (<-whole.events).ID, "the samples hold up nobody, and take no place from a tap")
	for _, x := range open {
		require.ErrorIs(t, x.end(), context.Canceled)
	}
	waiting.Until(t, func() bool {
		err := s.Tap(t.Context(), console.Tap{Newest: 1}, func(*console.Tapped) error { return errors.New("enough") }, func(*console.TapCounts) {})
		return err != nil && err.Error() == "enough"
	}, "the places are free")
	require.ErrorIs(t, whole.end(), context.Canceled)
}

// An expression that takes as long as one may is asked of few events, and not of all that a page could have.
func TestACostlyExpressionIsAskedOfFewEvents(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	const many = 5000
	s.crowd("many", many)
	list := "[" + strings.Repeat("1,", 400) + "1]"
	var counts console.TapCounts
	req := console.Tap{Newest: 50, Match: list + ".all(x, " + list + ".all(y, " + list + ".all(z, x == y && y == z))) && body.n == -1"}
	err := s.Tap(t.Context(), req, func(*console.Tapped) error { return nil }, func(c *console.TapCounts) { counts = *c })
	require.NoError(t, err)
	assert.Positive(t, counts.Failed, "it takes more work than one may")
	assert.Less(t, counts.Failed, int64(many))
}
