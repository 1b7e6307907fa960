package journal

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/testbed/waiting"
	"github.com/auditrelay/auditrelay/relay"
	"github.com/auditrelay/auditrelay/relay/relaytest"
)

func TestBacklogCountsEventsBehindARecord(t *testing.T) {
	t.Parallel()
	start := time.Unix(1_700_000_000, 0)
	at := func(s int) time.Time { return start.Add(time.Duration(s) * time.Second) }
	var b backlog
	b.begin(jetstream.StreamState{}, start)
	b.add(1, 10, at(1))
	b.add(3, 30, at(2)) // 2 ends after 3
	b.add(2, 20, at(3))
	for _, c := range []struct {
		acked, end uint64
		events     int64
		oldest     time.Time
	}{
		{0, 3, 60, at(1)},
		{1, 3, 50, at(2)},
		{3, 3, 0, time.Time{}},
		{1, 0, 50, at(2)},  // the server does not answer
		{1, 5, 52, at(2)},  // two records of another relay
		{3, 5, 2, at(100)}, // only those
		{9, 3, 0, time.Time{}},
	} {
		events, oldest := b.behind(c.acked, c.end, at(100))
		assert.Equal(t, c.events, events, "%+v", c)
		assert.Equal(t, c.oldest, oldest, "%+v", c)
	}
	b.add(4, 1, at(4))
	b.add(2, 5, at(9)) // the stream went back
	events, oldest := b.behind(1, 2, at(100))
	assert.EqualValues(t, 5, events)
	assert.Equal(t, at(9), oldest)
}

// With bounded memory a long backlog stays about right. What every sink has is forgotten,
// and then every commit counts again.
func TestBacklogIsBounded(t *testing.T) {
	t.Parallel()
	start := time.Unix(1_700_000_000, 0)
	var b backlog
	b.begin(jetstream.StreamState{}, start)
	random := rand.New(rand.NewPCG(1, 2))
	upTo := []int64{0}
	add := func(acked uint64) {
		i, n := len(upTo), random.IntN(100)
		upTo = append(upTo, upTo[i-1]+int64(n))
		if b.add(uint64(i), n, start.Add(time.Duration(i)*time.Second)) {
			b.shorten(acked)
		}
		require.Less(t, len(b.marks), maxMarks)
	}
	for range 50_000 {
		add(0)
	}
	for _, acked := range []uint64{1, 777, 20_000, 40_001, 49_990} {
		events, oldest := b.behind(acked, 50_000, time.Time{})
		assert.InDelta(t, upTo[50_000]-upTo[acked], events, 50*32, "behind record %d", acked)
		assert.WithinDuration(t, start.Add(time.Duration(acked+1)*time.Second), oldest, 32*time.Second)
	}
	for i := range uint64(100_000) {
		add(50_000 + i - 10)
	}
	events, oldest := b.behind(149_983, 150_000, time.Time{})
	assert.Equal(t, upTo[150_000]-upTo[149_983], events)
	assert.Equal(t, start.Add(149_984*time.Second), oldest)
}

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

// A restart knows the lag of the events before it, by samples.
func TestLagCountsEventsOfBeforeTheStart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	o := open(t, dir, testConfig)
	s, err := o.Source(t.Context(), "slow", relay.BatchLimit{Events: 100, Bytes: 1 << 20})
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
	defer o.shut(t)
	s = o.source(t, "slow")
	defer s.Close()
	waiting.Until(t, func() bool {
		b, _ = o.Backlog("slow")
		return b.Events == 500
	}, "the samples are not counted")
	o.push(t, relaytest.Events(7))
	b, _ = o.Backlog("slow")
	assert.EqualValues(t, 507, b.Events)
	read(t, s, 507, true)
	b, _ = o.Backlog("slow")
	assert.Zero(t, b)
}
