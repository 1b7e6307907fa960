package journal

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/datadir"
	"github.com/auditrelay/auditrelay/relay/relaytest"
)

const (
	waitLong  = 5 * time.Minute // only a failure waits so long
	pollEvery = 5 * time.Millisecond
)

func TestTheFuseBlows(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		damaged, readable uint64
		held              bool
	}{
		"one of few":          {1, 3, false},
		"three of few":        {3, 96, false},
		"one in a hundred":    {1, 99, false},
		"two in a hundred":    {2, 98, true},
		"one per cent":        {2, 198, false},
		"ten of many":         {10, 100_000, false},
		"eleven of many":      {11, 100_000, true},
		"nothing is readable": {30_850, 0, true},
	} {
		f := newFuse(slog.New(slog.DiscardHandler), prometheus.NewRegistry())
		f.note(datadir.Span{From: 101, To: 100 + c.damaged}, c.readable)
		assert.Equal(t, c.held, f.state().Held, name)
		assert.Equal(t, c.held, f.holds(datadir.Span{From: 50, To: 101}), name)
		assert.False(t, f.holds(datadir.Span{From: 1, To: 100}), "%s: what lies before it is given", name)
		f.accept(100 + c.damaged)
		assert.False(t, f.holds(datadir.Span{From: 50, To: 101}), name)
		f.note(datadir.Span{From: 50, To: 60}, c.readable)
		assert.False(t, f.state().Held, "%s: older damage is accepted too", name)
	}
}

// untilWaiting reads until the sink waits before damage. Nothing may come.
func untilWaiting(t *testing.T, j *opened, s *Source) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), waitLong)
	defer cancel()
	go func() {
		for len(j.Damage().Waiting) == 0 && ctx.Err() == nil {
			time.Sleep(pollEvery)
		}
		cancel()
	}()
	_, err := s.Next(ctx)
	require.ErrorIs(t, err, context.Canceled)
}

// A run of records that cannot be decoded, as after a change of format that
// nobody told us of: sinks wait before it, pushes are taken, and once a person has
// accepted it all else is delivered.
func TestMuchDamageWaitsForAPerson(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	j := open(t, dir, testConfig)
	first := relaytest.Events(2)
	j.push(t, first)
	for range 30 {
		j.publish(t, []byte("no record at all"))
	}
	s := j.source(t, "k")
	assert.Equal(t, ids(first), ids(read(t, s, 2, true)))
	untilWaiting(t, j, s)
	assert.InDelta(t, 1, testutil.ToFloat64(j.fuse.blown), 0)
	last := relaytest.Events(2, relaytest.From(1000))
	j.push(t, last) // ingest goes on
	s.Close()
	j.shut(t)

	j = open(t, dir, testConfig) // a restart does not answer for the person
	defer j.shut(t)
	s = j.source(t, "k")
	defer s.Close()
	untilWaiting(t, j, s)
	info, err := s.consumer.Info(t.Context())
	require.NoError(t, err)
	assert.LessOrEqual(t, info.AckFloor.Stream, uint64(1+10), "nothing behind that is acknowledged")
	was, err := j.AcceptDamage(t.Context())
	require.NoError(t, err)
	assert.True(t, was.Held)
	assert.Equal(t, ids(last), ids(read(t, s, 2, true)))
	quarantine, err := j.Quarantine(t.Context())
	require.NoError(t, err)
	assert.Len(t, quarantine, 30, "each is named all the same")
	assert.False(t, j.Damage().Held)
	_, err = j.AcceptDamage(t.Context())
	require.ErrorIs(t, err, ErrNoDamage)

	again := newFuse(j.log, prometheus.NewRegistry())
	j.fuse = again
	require.NoError(t, j.accountForDamage(t.Context()))
	assert.False(t, again.state().Held, "the next start knows that it was accepted")
}
