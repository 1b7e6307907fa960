package console_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/control/console"
	"github.com/auditrelay/auditrelay/internal/journal/deadletters"
	"github.com/auditrelay/auditrelay/internal/testbed/trailtest"
	"github.com/auditrelay/auditrelay/internal/trail/audit"
	"github.com/auditrelay/auditrelay/internal/trail/timeline"
	"github.com/auditrelay/auditrelay/relay"
	"github.com/auditrelay/auditrelay/relay/relaytest"
)

// withTrail gives a stage's console a trail.
func (s *stage) withTrail(options *console.Options) (closeTrail func()) {
	s.t.Helper()
	trail, stop := trailtest.Serve(s.t, filepath.Join(s.dir, "trail"))
	index := timeline.Open(timeline.Options{Path: filepath.Join(s.dir, timeline.FileName), Trail: trail})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		index.Keep(ctx)
	}()
	s.trail = trail
	options.Event = func(_ context.Context, e audit.Recorded) (relay.Event, error) {
		return relay.Event{ID: fmt.Sprintf("entry-%d", e.Index), Type: e.Type, Project: e.Project, Environment: e.Environment, Body: e.After}, nil
	}
	options.Timeline, options.Trail = index, trail
	return func() {
		cancel()
		<-done
		stop()
	}
}

func entry(kind, setting string, minute int, before, after string) audit.Entry {
	e := audit.Entry{
		Type: kind, Project: "acme", Environment: "live", Subject: setting,
		Time: time.Date(2026, 3, 1, 8, minute, 0, 0, time.UTC), After: json.RawMessage(after),
	}
	if before != "" {
		e.Before = json.RawMessage(before)
	}
	return e
}

func TestTheTrailIsListedShownAndAnnotated(t *testing.T) {
	t.Parallel()
	s := newStage(t, "a")
	for _, e := range []audit.Entry{
		entry("settings.baseline", "sms_country_codes", 0, "", `["DE"]`),
		entry("settings.changed", "sms_country_codes", 10, `["DE"]`, `["DE","KP"]`),
	} {
		_, err := s.trail.Append(t.Context(), e)
		require.NoError(t, err)
	}
	var rows []timeline.Row
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	followed := make(chan error, 1)
	got := make(chan timeline.Row)
	go func() {
		followed <- s.List(ctx, console.ListTrail{Follow: true}, func(r timeline.Row) error { got <- r; return nil })
	}()
	rows = append(rows, <-got, <-got)
	assert.Equal(t, []int64{0, 1}, []int64{rows[0].Index, rows[1].Index})

	done, err := s.Annotate(t.Context(), timeline.Annotation{Index: 1, Reviewer: "ada", Person: audit.Person{User: "u", Host: "h"}})
	require.NoError(t, err)
	assert.EqualValues(t, 2, done.Entry)
	assert.EqualValues(t, 2, (<-got).Index, "a follower gets new entries")
	cancel()
	require.ErrorIs(t, <-followed, context.Canceled)
	require.NoError(t, s.List(t.Context(), console.ListTrail{Filter: timeline.Filter{Unreviewed: true}},
		func(r timeline.Row) error { t.Errorf("%v needs no review", r); return nil }))

	var whole []timeline.Entry
	require.NoError(t, s.Entries(t.Context(), timeline.Filter{Type: "settings.changed"}, func(e timeline.Entry) error { whole = append(whole, e); return nil }))
	require.Len(t, whole, 1)
	assert.JSONEq(t, `["DE","KP"]`, string(whole[0].After))

	for want, a := range map[string]timeline.Annotation{
		"there is no such entry in the trail: entry 9": {Index: 9, Reviewer: "ada"},
		"entry 2 is an annotation itself":              {Index: 2, Reviewer: "ada"},
		"needs a reviewer":                             {Index: 1},
	} {
		_, err := s.Annotate(t.Context(), a)
		require.ErrorContains(t, err, want)
	}
	require.ErrorContains(t, s.List(t.Context(), console.ListTrail{Filter: timeline.Filter{Severity: "bad"}}, nil), `severity "bad"`)
}

func TestASettingAtATime(t *testing.T) {
	t.Parallel()
	s := newStage(t, "a")
	_, err := s.trail.Append(t.Context(), entry("settings.baseline", "sms_country_codes", 0, "", `["DE"]`))
	require.NoError(t, err)
	list, err := s.Settings(t.Context(), timeline.Filter{})
	require.NoError(t, err)
	require.Len(t, list, 1)
	state, err := s.At(t.Context(), timeline.Where{Setting: "sms_country_codes"}, time.Now())
	require.NoError(t, err)
	assert.Equal(t, `["DE"]`, string(state.Value))
	_, err = s.At(t.Context(), timeline.Where{Setting: "colour"}, time.Now())
	require.ErrorContains(t, err, "the trail has no state of colour")
}

func TestEntriesAreForwarded(t *testing.T) {
	t.Parallel()
	s := newStage(t, "a")
	for minute := range 5 {
		_, err := s.trail.Append(t.Context(), entry("settings.changed", "sms_country_codes", minute, `["DE"]`, `["DE","KP"]`))
		require.NoError(t, err)
	}
	forward := func(req console.ForwardTrail) (p console.Progress, err error) {
		err = s.ForwardTrail(t.Context(), req, func(now *console.Progress) { p = *now })
		return p, err
	}
	since := timeline.Filter{Since: time.Date(2026, 3, 1, 8, 1, 0, 0, time.UTC)}
	p, err := forward(console.ForwardTrail{Sink: "a", Filter: since, DryRun: true})
	require.NoError(t, err)
	assert.Equal(t, []uint64{4, 0}, []uint64{p.Matched, p.Delivered})
	assert.Empty(t, s.sinks["a"].Calls())

	s.sinks["a"].Respond = relaytest.Script(busy) // at first
	p, err = forward(console.ForwardTrail{Sink: "a", Filter: since})
	require.NoError(t, err)
	assert.Equal(t, []uint64{4, 4, 0, 4}, []uint64{p.Matched, p.Delivered, p.Refused, p.Done})
	assert.Equal(t, []string{"entry-1", "entry-2", "entry-3", "entry-4"}, eventIDs(s.sinks["a"].Arrived()), "in order")

	s.sinks["a"].Respond = relaytest.Naming(relay.Permanent(errors.New("too large")), "entry-2")
	p, err = forward(console.ForwardTrail{Sink: "a", Filter: since})
	require.NoError(t, err)
	assert.Equal(t, []uint64{3, 1}, []uint64{p.Delivered, p.Refused})
	assert.Equal(t, []string{"entry-2"}, letterIDs(s.letters(deadletters.Filter{Sink: "a"}, false)))
	_, err = forward(console.ForwardTrail{Sink: "b"})
	require.ErrorContains(t, err, `there is no sink "b"`)
}
