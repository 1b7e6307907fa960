package health

import (
	"encoding/json"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// learn passes days of pushes, and returns the model and the last push.
func learn(p pushes, days int) (*Rhythm, time.Time) {
	m := &Rhythm{}
	return m, simulate(m, seeded(1), p, start, start.AddDate(0, 0, days)).last
}

// allowed is the silence allowed after a push.
func allowed(t *testing.T, m *Rhythm, last time.Time) time.Duration {
	t.Helper()
	at, ok := m.SilentAfter(last)
	require.True(t, ok)
	return at.Sub(last)
}

func TestNothingLearnt(t *testing.T) {
	t.Parallel()
	m := &Rhythm{}
	_, ok := m.SilentAfter(start)
	assert.False(t, ok)
	assert.Zero(t, m.Expected(start, start.Add(time.Hour)))
	for i := range 23 * 60 {
		at := start.Add(time.Duration(i) * time.Minute)
		m.Observe(at, at.Add(time.Minute), 1, 1)
	}
	_, ok = m.SilentAfter(start.Add(23 * time.Hour))
	assert.False(t, ok, "the first day is grace, however much comes")
}

func TestBusyIsNoticedWithinAMinute(t *testing.T) {
	t.Parallel()
	m, last := learn(constant(3600), 2)
	d := allowed(t, m, last)
	assert.GreaterOrEqual(t, d, leastSilence)
	assert.Less(t, d, time.Minute)
}

// TestBatchThatFails learns a nightly batch.
func TestBatchThatFails(t *testing.T) {
	t.Parallel()
	m, last := learn(batch(24*time.Hour), 60)
	d := allowed(t, m, last)
	t.Logf("noticed %s after the last push", d)
	assert.Greater(t, d, 25*time.Hour)
	assert.Less(t, d, 75*time.Hour, "in the third night at the latest")
}

func TestOfficeHours(t *testing.T) {
	t.Parallel()
	m, _ := learn(officeHours(60), 28)
	friday := time.Date(2025, 1, 31, 16, 55, 0, 0, time.UTC)
	monday := time.Date(2025, 2, 3, 7, 0, 0, 0, time.UTC)
	at := friday.Add(allowed(t, m, friday))
	assert.True(t, at.After(monday), "a weekend is no silence: %s", at)
	assert.True(t, at.Before(monday.Add(2*time.Hour)), "a Monday without pushes is one: %s", at)
	assert.Less(t, allowed(t, m, monday.Add(3*time.Hour)), time.Hour)
}

// TestOutageIsNotLearnt lets a day pass that looks like mere silence.
func TestOutageIsNotLearnt(t *testing.T) {
	t.Parallel()
	m, last := learn(constant(60), 21)
	before := allowed(t, m, last)
	back := last.Add(24 * time.Hour)
	m.Observe(last, back, 10, 1)
	assert.Less(t, allowed(t, m, back), before*3/2, "at once")
	last = simulate(m, seeded(2), constant(60), back, back.Add(24*time.Hour)).last
	assert.Less(t, allowed(t, m, last), before*3/2, "a day later")
}

// TestFloodIsNotExpectedAgain lets a backlog of pushes come in one hour.
func TestFloodIsNotExpectedAgain(t *testing.T) {
	t.Parallel()
	m, last := learn(constant(6), 28)
	r := seeded(3)
	last = simulate(m, r, constant(3600), last, last.Add(time.Hour)).last
	l := simulate(m, r, constant(6), last, last.Add(15*24*time.Hour))
	assert.Zero(t, l.alarms)
}

// TestSlowerRhythm counts the alarms after a real change, day by day.
func TestSlowerRhythm(t *testing.T) {
	t.Parallel()
	m, last := learn(constant(60), 28)
	r, p := seeded(4), constant(.5)
	var alarms []int
	for range 14 {
		l := simulate(m, r, p, last, last.Add(24*time.Hour))
		alarms, last = append(alarms, l.alarms), l.last
	}
	t.Logf("alarms by day: %v", alarms)
	assert.Positive(t, alarms[0])
	for _, n := range alarms[7:] {
		assert.Zero(t, n)
	}
}

// TestHoliday takes the pushes of an office's Wednesday away.
func TestHoliday(t *testing.T) {
	t.Parallel()
	m, _ := learn(officeHours(60), 28)
	tuesday := time.Date(2025, 2, 4, 16, 55, 0, 0, time.UTC)
	wednesday := time.Date(2025, 2, 5, 7, 0, 0, 0, time.UTC)
	at := tuesday.Add(allowed(t, m, tuesday))
	assert.True(t, at.After(wednesday) && at.Before(wednesday.Add(2*time.Hour)), "a holiday is an alarm: %s", at)
	back := wednesday.Add(24 * time.Hour)
	m.Observe(tuesday, back, 10, 1)
	l := simulate(m, seeded(5), officeHours(60), back, back.AddDate(0, 0, 21))
	assert.Zero(t, l.alarms, "the weeks after it are as before")
	next := wednesday.AddDate(0, 0, 28).Add(3 * time.Hour)
	assert.Less(t, allowed(t, m, next), time.Hour)
}

// TestClockJumps observes spans of a clock gone wrong, and good ones again.
func TestClockJumps(t *testing.T) {
	t.Parallel()
	m, last := learn(constant(60), 21)
	before := allowed(t, m, last)
	ahead := last.AddDate(1, 0, 0)
	m.Observe(last, ahead, 1, 1)
	m.Observe(ahead, ahead.Add(time.Hour), 60, 60)
	m.Observe(ahead.Add(time.Hour), last, 1, 1)
	m.Observe(last, last.AddDate(-60, 0, 0), 1, 1)
	m.Observe(time.Time{}, last, 1, 1)
	m.Observe(last, last.Add(time.Hour), -1, 1)
	l := simulate(m, seeded(6), constant(60), last, last.AddDate(0, 0, 7))
	assert.Zero(t, l.alarms)
	assert.InEpsilon(t, before, allowed(t, m, l.last), .5)
}

// TestExpected compares an estimate with what came.
func TestExpected(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		p      pushes
		within float64
	}{
		{"1 a minute", constant(60), .05},
		{"office hours", officeHours(60), .1},
		{"bursts", clustered(constant(20), 10, 3), .15},
		{"nightly", batch(24 * time.Hour), .15},
	} {
		m, last := learn(c.p, 35)
		r, came, week := seeded(7), 0.0, last.AddDate(0, 0, 7)
		for at := c.p(r, last); at.Before(week); at = c.p(r, at) {
			came += 10
		}
		expected := m.Expected(last, week)
		t.Logf("%s: %.0f expected in a week, %.0f came", c.name, expected, came)
		assert.InEpsilon(t, came, expected, c.within, c.name)
	}
	m, last := learn(constant(60), 35)
	assert.InEpsilon(t, 600, m.Expected(last, last.Add(time.Hour)), .2)
	assert.InEpsilon(t, 6e2*24*7*52, m.Expected(last, last.AddDate(1, 0, 0)), .05)
	assert.Zero(t, m.Expected(last, last.Add(-time.Hour)))
}

func TestJSON(t *testing.T) {
	t.Parallel()
	m, last := learn(constant(6), 40)
	data, err := json.Marshal(m)
	require.NoError(t, err)
	assert.Less(t, len(data), 60_000)
	var back Rhythm
	require.NoError(t, json.Unmarshal(data, &back))
	again, err := json.Marshal(&back)
	require.NoError(t, err)
	assert.JSONEq(t, string(data), string(again))
	assert.InEpsilon(t, allowed(t, m, last), allowed(t, &back, last), .05)
	for _, bad := range []string{
		`{`, `{}`, `{"version":2}`, `{"version":1,"open":-1}`, `{"version":1,"gaps":{"weight":-1}}`, `{"version":1,"pushes":{"seen":1e300}}`,
		`{"version":1,"hours":[[{"s":1}]]}`, `{"version":1,"hours":[[{"h":1.5}]]}`, `{"version":1,"hours":[[{"h":168,"s":3601}]]}`,
		`{"version":1,"hours":[[{"h":1}]]}`, `{"version":1,"hours":[[{"h":168},{"h":336}]]}`, `{"version":1,"hours":[[{"h":168},{"h":168}]]}`,
		`{"version":1,"hours":[[{},{"h":168}]]}`, `{"version":1,"gaps":{"counts":[1,-1]}}`, `{"version":1,"drought":{"tail":{"counts":[1e16]}}}`,
	} {
		require.Error(t, json.Unmarshal([]byte(bad), &back), bad)
	}
	assert.InEpsilon(t, allowed(t, m, last), allowed(t, &back, last), .05, "an error leaves the model as it was")
}

func FuzzRhythm(f *testing.F) {
	m, _ := learn(constant(6), 3)
	data, err := json.Marshal(m)
	require.NoError(f, err)
	f.Add(data, int64(1_760_000_000), int64(60), int64(3))
	f.Add([]byte(`{"version":1,"hours":[[{"h":168,"s":3600,"b":1e15,"e":1e15}]],"gaps":{"counts":[0,1e15],"weight":1e15}}`), int64(0), int64(1e9), int64(1e18))
	f.Fuzz(func(t *testing.T, data []byte, at, gap, events int64) {
		var m Rhythm
		if json.Unmarshal(data, &m) != nil {
			return
		}
		again, err := json.Marshal(&m)
		require.NoError(t, err)
		require.NoError(t, json.Unmarshal(again, &m))
		last := time.Unix(at%1e11, 0)
		m.Observe(last, last.Add(time.Duration(gap)), events, 1)
		if silent, ok := m.SilentAfter(last); ok {
			require.False(t, silent.Before(last.Add(leastSilence)))
			require.False(t, silent.After(last.Add(horizon)))
		}
		n := m.Expected(last, last.Add(time.Duration(gap)))
		require.False(t, math.IsNaN(n) || math.IsInf(n, 0) || n < 0)
	})
}
