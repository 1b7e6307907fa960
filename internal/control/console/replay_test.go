package console_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/control/console"
	"github.com/auditrelay/auditrelay/internal/journal"
	"github.com/auditrelay/auditrelay/internal/journal/deadletters"
	"github.com/auditrelay/auditrelay/internal/testbed/waiting"
	"github.com/auditrelay/auditrelay/relay"
	"github.com/auditrelay/auditrelay/relay/relaytest"
)

func TestASpanIsReplayed(t *testing.T) {
	t.Parallel()
	s := newStage(t, "a")
	events := relaytest.Events(90, relaytest.Environments("acme/live", "acme/test"))
	start := time.Now()
	s.push(events[:30])
	since := time.Now()
	s.push(events[30:60])
	until := time.Now()
	s.push(events[60:])

	p, err := s.spanned(console.ReplaySpan{Sink: "a", Since: since, Until: until, DryRun: true})
	require.NoError(t, err)
	assert.Equal(t, []uint64{30, 0, 30, 30}, []uint64{p.Matched, p.Delivered, p.Done, p.Total})
	assert.Empty(t, p.Notes)
	assert.Empty(t, s.sinks["a"].Calls())

	s.sinks["a"].Respond = relaytest.Script(busy) // at first
	p, err = s.spanned(console.ReplaySpan{Sink: "a", Since: since, Until: until})
	require.NoError(t, err)
	assert.Equal(t, []uint64{30, 30, 0, 30}, []uint64{p.Matched, p.Delivered, p.Refused, p.Done})
	assert.Equal(t, events[30:60], s.sinks["a"].Arrived(), "the same events, in order")

	p, err = s.spanned(console.ReplaySpan{Sink: "a", Since: start.Add(-time.Hour), Match: `environment == "test" && type.startsWith("event_log.")`})
	require.NoError(t, err)
	assert.Equal(t, uint64(45), p.Delivered)
	assert.Empty(t, p.Notes, "nothing was trimmed")
}

func TestASpanRefused(t *testing.T) {
	t.Parallel()
	s := newStage(t, "a")
	events := relaytest.Events(20)
	s.push(events)
	s.sinks["a"].Respond = relaytest.Naming(relay.Permanent(errors.New("too large")), events[4].ID)
	p, err := s.spanned(console.ReplaySpan{Sink: "a", Since: time.Now().Add(-time.Hour)})
	require.NoError(t, err)
	assert.Equal(t, []uint64{19, 1}, []uint64{p.Delivered, p.Refused})
	assert.Equal(t, []string{events[4].ID}, letterIDs(s.letters(deadletters.Filter{Sink: "a"}, false)))

	for want, req := range map[string]console.ReplaySpan{
		`there is no sink "b"`:  {Sink: "b"},
		"match.cel: column 1":   {Sink: "a", Match: "colour"},
		"the span is empty: it": {Sink: "a", Since: time.Now(), Until: time.Now().Add(-time.Hour)},
	} {
		_, err := s.spanned(req)
		require.ErrorContains(t, err, want)
	}
}

// An unreadable span holds nothing up, and is reported.
func TestASpanBehindTheTrimming(t *testing.T) {
	t.Parallel()
	s := newStage(t, "a")
	events := incompressible(30)
	s.push(events)
	span, err := s.journal.Set.Span(t.Context(), time.Time{}, time.Time{}, relay.BatchLimit{Events: 5, Bytes: 1 << 30}, nil)
	require.NoError(t, err)
	first, err := span.Next(t.Context())
	require.NoError(t, err)
	require.Equal(t, eventIDs(events[:5]), eventIDs(first.Events))
	s.acknowledge("live", 20)
	_, err = s.journal.Trim(t.Context(), time.Now())
	require.NoError(t, err)
	require.EqualValues(t, 20, s.journal.Trimmed(), "by this trim, or by one that made room before it")
	var rest []relay.Event
	for err == nil {
		var b relay.Batch
		b, err = span.Next(t.Context())
		rest = append(rest, b.Events...)
	}
	require.ErrorIs(t, err, journal.ErrSpanEnd)
	assert.Equal(t, eventIDs(events[20:]), eventIDs(rest[len(rest)-10:]))
	assert.Positive(t, span.Missing)
	assert.EqualValues(t, 30, 5+uint64(len(rest))+span.Missing, "a few may have been read ahead")

	p, err := s.spanned(console.ReplaySpan{Sink: "a", Since: time.Now().Add(-time.Hour)})
	require.NoError(t, err)
	require.Len(t, p.Notes, 1)
	assert.Contains(t, p.Notes[0], "before the oldest kept event")
	assert.Equal(t, uint64(10), p.Delivered)
}

// incompressible are n events, each of which fills a segment of a stage's store.
func incompressible(n int) []relay.Event {
	events, random := relaytest.Events(n), rand.NewChaCha8([32]byte{1})
	for i := range events {
		events[i].Body = make([]byte, 100_000)
		_, _ = random.Read(events[i].Body)
	}
	return events
}

// acknowledge lets a sink of the journal take the first n records.
func (s *stage) acknowledge(sink string, n int) {
	s.t.Helper()
	source, err := s.journal.Source(s.t.Context(), sink, relay.BatchLimit{Events: 1, Bytes: 1})
	require.NoError(s.t, err)
	defer source.Close()
	for range n {
		b, err := source.Next(s.t.Context())
		require.NoError(s.t, err)
		require.NoError(s.t, source.Ack(s.t.Context(), b.Position))
	}
	list, err := s.journal.Sinks(s.t.Context())
	require.NoError(s.t, err)
	require.Len(s.t, list, 1)
	require.Equal(s.t, uint64(n), list[0].Acknowledged)
}

func TestSinksAreListedAndRetired(t *testing.T) {
	t.Parallel()
	s := newStage(t, "a")
	events := incompressible(10)
	s.push(events)
	s.acknowledge("old", 4)
	s.reject("old", "too large", 1, events[0])

	list, err := s.Sinks(t.Context())
	require.NoError(t, err)
	require.Equal(t, []string{"a", "old"}, idsOf(list, func(k *console.Sink) string { return k.Name }))
	assert.True(t, list[0].Configured)
	assert.Nil(t, list[0].Position)
	old := list[1]
	assert.False(t, old.Configured)
	assert.Equal(t, uint64(1), old.DeadLetters)
	assert.Equal(t, []uint64{4, 6}, []uint64{old.Position.Acknowledged, old.Position.Pending})
	assert.WithinDuration(t, time.Now(), old.Position.Oldest, time.Minute)
	assert.Positive(t, old.Position.HeldBytes)

	_, err = s.Retire(t.Context(), "a")
	require.ErrorContains(t, err, "remove it from the config first")
	_, err = s.Retire(t.Context(), "never")
	require.ErrorContains(t, err, `keeps no position of a sink "never"`)
	trimmed, err := s.journal.Trim(t.Context(), time.Now())
	require.NoError(t, err)
	assert.Equal(t, uint64(4), trimmed, "it holds the others")

	_, err = s.Retire(t.Context(), "old")
	require.NoError(t, err)
	require.Len(t, s.losses, 1)
	assert.Equal(t, "Ada & Co.@höst", s.losses[0].Person.Claimed, "whoever the kernel says it is")
	assert.Equal(t, []string{"sink.retired", "old"}, []string{s.losses[0].Type, s.losses[0].Sink})
	trimmed, err = s.journal.Trim(t.Context(), time.Now())
	require.NoError(t, err)
	assert.Equal(t, uint64(5), trimmed, "it holds nothing any more; the store keeps its newest segment")
	assert.Len(t, s.letters(deadletters.Filter{Sink: "old"}, false), 1, "its dead letters stay")
}

func TestASpanIsCancelled(t *testing.T) {
	t.Parallel()
	s := newStage(t, "a")
	s.push(relaytest.Events(5))
	s.sinks["a"].Respond = func(int, []relay.Event) relaytest.Outcome { return busy }
	ctx, cancel := context.WithCancel(t.Context())
	err := s.ReplaySpan(ctx, console.ReplaySpan{Sink: "a"}, func(p *console.Progress) {
		if p.Failing != "" {
			cancel()
		}
	})
	require.ErrorIs(t, err, context.Canceled)
}

// A replay whose sink does not answer holds up neither live delivery nor the
// sink's position.
func TestLiveDeliveryGoesOnBesideAReplay(t *testing.T) {
	t.Parallel()
	s := newStage(t, "a")
	events := relaytest.Events(20)
	s.push(events[:10])
	s.sinks["a"].Respond = func(int, []relay.Event) relaytest.Outcome { return relaytest.Outcome{Hang: true} }
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- s.ReplaySpan(ctx, console.ReplaySpan{Sink: "a"}, func(*console.Progress) {}) }()
	waiting.Until(t, func() bool { return len(s.sinks["a"].Calls()) == 1 })
	s.push(events[10:])
	s.acknowledge("a", 20)
	cancel()
	require.ErrorIs(t, <-ended, context.Canceled)
}
