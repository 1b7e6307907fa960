package health

import (
	"encoding/json"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// noticed lets pushes go on, and returns how long it takes until they are far too few; 0 for
// never.
func noticed(m *Rhythm, p pushes, of sizes, last time.Time, most time.Duration) time.Duration {
	r := seeded(8)
	for at := p(r, last); at.Sub(last) < most; {
		before := at
		if at = p(r, at); at.Sub(last) >= most {
			break
		}
		m.Observe(before, at, of(r, at), 1)
		if _, _, reduced := m.Reduced(); reduced {
			return at.Sub(last)
		}
	}
	return 0
}

// TestATrickle takes 99.5 % of the events away, in each way that a sender may.
func TestATrickle(t *testing.T) {
	t.Parallel()
	one := func(n int64) sizes { return func(*rand.Rand, time.Time) int64 { return n } }
	for name, c := range map[string]struct {
		rate   float64 // of pushes an hour
		p      pushes
		of     sizes
		within time.Duration
	}{
		"10 a second, then one in 20 s":        {3600, every(20 * time.Second), one(1), 2 * time.Minute},
		"the pushes come, with few events":     {3600, every(time.Second), one(1), 2 * time.Minute},
		"a push a minute, then one in 3 hours": {60, every(3 * time.Hour), one(10), 24 * time.Hour},
		"an hour's rest is usual at last":      {60, every(20 * time.Minute), one(10), 2 * time.Hour},
	} {
		if testing.Short() && c.rate > 1000 {
			continue // a fortnight of pushes each second takes too long with the race detector
		}
		of := ten
		if name == "the pushes come, with few events" {
			of = one(200)
		}
		m := &Rhythm{}
		last := simulateWith(m, seeded(1), constant(c.rate), of, start, start.AddDate(0, 0, 15)).last
		_, _, reduced := m.Reduced()
		require.False(t, reduced, name)
		d := noticed(m, c.p, c.of, last, 48*time.Hour)
		t.Logf("%s: noticed after %s", name, d)
		assert.Positive(t, d, name)
		assert.LessOrEqual(t, d, c.within, name)
	}
}

func every(d time.Duration) pushes {
	return func(_ *rand.Rand, at time.Time) time.Time { return at.Add(d) }
}

// TestHalfIsNoDrought lets a weekend have half of the usual pushes, and a day a third of the
// usual events.
func TestHalfIsNoDrought(t *testing.T) {
	t.Parallel()
	m, last := learn(constant(600), 20)
	l := simulate(m, seeded(9), constant(300), last, last.AddDate(0, 0, 2))
	assert.Zero(t, l.thin+l.alarms)
	l = simulateWith(m, seeded(9), constant(600), func(*rand.Rand, time.Time) int64 { return 3 }, l.last, l.last.AddDate(0, 0, 1))
	assert.Zero(t, l.thin+l.alarms)
}

// TestADroughtEnds within moments of its end, is kept over a restart, and is learnt when it
// lasts for days.
func TestADroughtEnds(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("a fortnight of pushes each second takes too long with the race detector")
	}
	m, last := learn(constant(3600), 15)
	began := last
	trickle := simulate(m, seeded(3), constant(20), last, last.Add(3*time.Hour))
	since, came, reduced := m.Reduced()
	require.True(t, reduced)
	assert.InDelta(t, 0, since.Sub(began).Seconds(), 10)
	assert.InDelta(t, 600, came, 200, "20 pushes an hour, of 10")
	data, err := json.Marshal(m)
	require.NoError(t, err)
	var back Rhythm
	require.NoError(t, json.Unmarshal(data, &back))
	again, _, reduced := back.Reduced()
	assert.True(t, reduced && again.Equal(since))
	assert.InEpsilon(t, 3600*10, back.Expected(trickle.last, trickle.last.Add(time.Hour)), .1, "it is not learnt")
	simulate(&back, seeded(4), constant(3600), trickle.last, trickle.last.Add(time.Minute))
	_, _, reduced = back.Reduced()
	assert.False(t, reduced)

	last = trickle.last
	var days []bool
	for range 10 {
		last = simulate(m, seeded(5), constant(60), last, last.AddDate(0, 0, 1)).last
		_, _, reduced = m.Reduced()
		days = append(days, reduced)
	}
	t.Logf("by day: %v", days)
	assert.True(t, days[0])
	assert.False(t, days[9], "it is the rhythm now")
}

// TestASilenceIsNoDrought ends a silence with usual pushes.
func TestASilenceIsNoDrought(t *testing.T) {
	t.Parallel()
	m, last := learn(constant(60), 15)
	back := last.Add(3 * time.Hour)
	m.Observe(last, back, 10, 1)
	l := simulate(m, seeded(3), constant(60), back, back.Add(24*time.Hour))
	assert.Zero(t, l.thin)
}
