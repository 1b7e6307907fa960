package console_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/control/console"
	"github.com/auditrelay/auditrelay/internal/journal/record"
	"github.com/auditrelay/auditrelay/internal/testbed/waiting"
	"github.com/auditrelay/auditrelay/relay"
)

// tapped is a running tap.
type tapped struct {
	events chan relay.Event
	counts chan console.TapCounts // the newest ones
	end    func() error
}

// tap begins a tap, and returns when it sees whatever is pushed from now on.
func (s *stage) tap(req console.Tap) *tapped {
	s.t.Helper()
	ctx, cancel := context.WithCancel(s.t.Context())
	x, ended := &tapped{events: make(chan relay.Event), counts: make(chan console.TapCounts, 1)}, make(chan error, 1)
	begun := make(chan struct{}, 1)
	go func() {
		ended <- s.Tap(ctx, req, func(one *console.Tapped) error {
			e, err := one.Event()
			select {
			case x.events <- e:
			case <-ctx.Done():
			}
			return err
		}, func(c *console.TapCounts) {
			select {
			case begun <- struct{}{}:
			default:
			}
			select {
			case <-x.counts:
			default:
			}
			x.counts <- *c
		})
	}()
	x.end = func() error { cancel(); return <-ended }
	select {
	case <-begun:
	case err := <-ended:
		require.NoError(s.t, err)
	}
	return x
}

func eventOf(id, kind, body string) relay.Event {
	return relay.Event{
		ID: id, Source: "/projects/p/environments/live", Type: kind, Project: "p", Environment: "live", ContentType: "application/json",
		Time: time.Unix(1, 0).UTC(), Received: time.Unix(2, 0).UTC(), Body: []byte(body),
		Labels: []relay.Label{{Name: "ip", Value: "10.0.0.1"}, {Name: "app", Value: "idp"}},
	}
}

// A tap begins now, and shows events as they were received, or as a sink gets them.
func TestATapShowsWhatPasses(t *testing.T) {
	t.Parallel()
	s := newStage(t, "redacting")
	s.push([]relay.Event{eventOf("before", "event_log.login", `{"email":"a@b"}`)})
	raw, redacted := s.tap(console.Tap{}), s.tap(console.Tap{Sink: "redacting"})
	chosen := s.tap(console.Tap{Sink: "redacting", Match: `body.n == 2 && !has(body.email)`})
	given := []relay.Event{
		eventOf("other", "settings.changed", `{"n":1}`), eventOf("no n", "event_log.login", `{"email":"a@b"}`),
		eventOf("two", "event_log.login", `{"n":2,"email":"a@b"}`), eventOf("one", "event_log.login", `{"n":1,"email":"a@b"}`),
	}
	s.push(given)
	for _, want := range given {
		assert.Equal(t, want, <-raw.events)
	}
	for _, want := range []struct{ id, body string }{{"no n", `{}`}, {"two", `{"n":2}`}, {"one", `{"n":1}`}} {
		got := <-redacted.events
		assert.Equal(t, want.id, got.ID)
		assert.Equal(t, want.body, string(got.Body))
		assert.Equal(t, []relay.Label{{Name: "app", Value: "idp"}}, got.Labels)
	}
	assert.Equal(t, "two", (<-chosen.events).ID)
	want := console.TapCounts{Shown: 1, LeftOut: 1, Other: 1, Failed: 1}
	waiting.Until(t, func() bool { return <-chosen.counts == want }, "the counts of the third tap")
	for _, x := range []*tapped{raw, redacted, chosen} {
		require.ErrorIs(t, x.end(), context.Canceled)
	}
	require.ErrorContains(t, s.Tap(t.Context(), console.Tap{Sink: "nope"}, nil, nil), `there is no sink "nope"`)
	require.ErrorContains(t, s.Tap(t.Context(), console.Tap{Match: "1"}, nil, nil), "match.cel: column 1: it is of the type int")
	long := strings.Repeat("true || ", 1000) + "false"
	require.ErrorContains(t, s.Tap(t.Context(), console.Tap{Match: long, Newest: 1}, nil, nil), "may have 4096")
	require.ErrorIs(t, s.tap(console.Tap{Match: long}).end(), context.Canceled)
}

// A client that reads nothing holds up nobody.
func TestASlowTapHoldsUpNobody(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	slow, quick := s.tap(console.Tap{}), s.tap(console.Tap{Match: `id == "last"`})
	var batch record.Batch
	for i := range 4000 {
		e := eventOf(fmt.Sprint(i), "event_log.login", `{"x":"`+strings.Repeat("x", 1000)+`"}`)
		batch.AddEvent(&e)
	}
	require.NoError(t, s.journal.Append(t.Context(), &batch))
	s.push([]relay.Event{eventOf("last", "event_log.login", `{}`)})
	assert.Equal(t, "last", (<-quick.events).ID)
	require.ErrorIs(t, slow.end(), context.Canceled)
	require.ErrorIs(t, quick.end(), context.Canceled)
}

func TestTapsAreBounded(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	var open []*tapped
	for range 4 {
		open = append(open, s.tap(console.Tap{}))
	}
	require.ErrorContains(t, s.Tap(t.Context(), console.Tap{}, nil, nil), "4 taps run already")
	require.ErrorIs(t, open[0].end(), context.Canceled)
	waiting.Until(t, func() bool {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		err := s.Tap(ctx, console.Tap{}, nil, func(*console.TapCounts) { cancel() })
		return ctx.Err() != nil && err != nil
	}, "the place of an ended tap is free")
}
