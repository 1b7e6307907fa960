package streaming

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/ingest/credentials"
)

// A credential is due by its own age. Environments have their own times within the last
// tenth of it.
func TestDueByAge(t *testing.T) {
	t.Parallel()
	s, now := schedule{every: 10 * time.Hour}, time.Now()
	due := func(age time.Duration) bool { return s.due(shopA, now.Add(-age), now) }
	assert.False(t, due(0))
	assert.False(t, due(9*time.Hour-time.Second))
	assert.True(t, due(10*time.Hour))
	assert.False(t, due(-time.Hour), "made by a clock that was ahead a little")
	assert.True(t, due(-1000*time.Hour), "by one far ahead")
	assert.False(t, s.due(shopA, time.Time{}, now), "nothing is known of it")
	never := schedule{}
	assert.False(t, never.due(shopA, now.Add(-1e6*time.Hour), now))

	times := map[bool]int{}
	for _, name := range []string{"a", "b", "c", "d", "e", "f", "g", "h"} {
		times[s.due(credentials.Environment{Project: name, Environment: name}, now.Add(-9*time.Hour-30*time.Minute), now)]++
	}
	assert.Len(t, times, 2, "not all at once: %v", times)
}

func TestRotationsKeepApart(t *testing.T) {
	t.Parallel()
	g, now := newGate(Options{RotateEvery: time.Hour, Environments: make([]config.Environment, 3)}), time.Now()
	assert.True(t, g.pass(now))
	assert.False(t, g.pass(now.Add(g.apart-1)))
	assert.True(t, g.pass(now.Add(g.apart)))
	assert.True(t, g.pass(now.Add(-time.Hour)), "a clock that was ahead stops nothing")
	assert.LessOrEqual(t, 3*g.apart, time.Hour/10, "all find room in the last tenth of the age")
}

// The age is that of the credential in the store: a restart neither skips nor repeats a
// rotation. A failed one is tried again at growing pauses.
func TestRotationBySchedule(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	every := func(d time.Duration) func(*Options) {
		return func(o *Options) { o.RotateEvery = d }
	}
	r, _ := g.start(every(time.Hour), toRelay)
	for range 2 {
		require.NoError(t, look(t, r))
	}
	assert.Equal(t, 1, g.api.count(), "it is new")

	g.api.failPut = 500
	r, _ = g.start(every(1), toRelay) // it is older than a nanosecond
	for range 3 {
		require.ErrorContains(t, look(t, r), "rotate the credential by schedule")
	}
	assert.Equal(t, 2, g.api.count(), "a failure is spaced out, and stays visible")
	g.api.failPut = 0
	r.watchers[0].schedule.next = time.Time{}
	old := g.api.field("password")
	require.NoError(t, look(t, r))
	assert.Equal(t, 3, g.api.count())
	assert.NotEqual(t, old, g.api.field("password"))
	_, d := g.trail.newest()
	assert.Equal(t, []string{scheduledReason}, d.Reason)
	assert.Equal(t, "relay", d.Actor)

	r, _ = g.start(every(time.Hour), toRelay)
	require.NoError(t, look(t, r))
	assert.Equal(t, 3, g.api.count())
	r, _ = g.start(func(o *Options) { observing(o); o.RotateEvery = 1 }, toRelay)
	require.NoError(t, look(t, r))
	assert.Equal(t, 3, g.api.count(), "nothing is set by itself where the relay observes")
}
