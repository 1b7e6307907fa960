package journal

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/testbed/waiting"
	"github.com/auditrelay/auditrelay/relay"
	"github.com/auditrelay/auditrelay/relay/relaytest"
)

func TestFillingTellsTheTimeToFull(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_700_000_000, 0)
	var f filling
	assert.True(t, math.IsNaN(f.secondsToFull(1000)))
	f.look(now, 100)
	assert.True(t, math.IsNaN(f.secondsToFull(1000)))
	f.look(now.Add(time.Second), 900)
	assert.True(t, math.IsNaN(f.secondsToFull(1000)), "a look too soon says nothing")
	f.look(now.Add(time.Minute), 160)
	assert.InDelta(t, 840, f.secondsToFull(1000), 0.1, "a byte a second")
	f.look(now.Add(2*time.Minute), 220)
	assert.InDelta(t, 780, f.secondsToFull(1000), 0.1)
	assert.Zero(t, f.secondsToFull(220))
	for i := range 30 {
		f.look(now.Add(time.Duration(i+3)*time.Minute), 10)
	}
	f.look(now.Add(40*time.Minute), 5)
	assert.True(t, math.IsInf(f.secondsToFull(1000), 1), "it does not fill")
}

// A restart knows the lag of the events before it.
func TestLagCountsEventsOfBeforeTheStart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	o := open(t, dir, testConfig)
	// A batch is a push: so that 500 events are ten batches, whatever was readable at the first.
	s, err := o.Source(t.Context(), "slow", relay.BatchLimit{Events: 50, Bytes: 1 << 20})
	require.NoError(t, err)
	for range 20 {
		o.push(t, relaytest.Events(50))
	}
	b, reading := o.Backlog("slow")
	require.True(t, reading)
	assert.EqualValues(t, 1000, b.Events)
	assert.WithinDuration(t, time.Now(), b.Oldest, waiting.Stall)
	read(t, s, 500, true)
	b, _ = o.Backlog("slow")
	assert.EqualValues(t, 500, b.Events)
	_, reading = o.Backlog("other")
	assert.False(t, reading)
	s.Close()
	o.shut(t)

	o = open(t, dir, testConfig)
	s = o.source(t, "slow")
	defer s.Close()
	b, _ = o.Backlog("slow")
	assert.EqualValues(t, 500, b.Events)
	o.push(t, relaytest.Events(7))
	b, _ = o.Backlog("slow")
	assert.EqualValues(t, 507, b.Events)
	read(t, s, 507, true)
	b, _ = o.Backlog("slow")
	assert.Zero(t, b)
}
