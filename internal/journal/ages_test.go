package journal

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/testbed/waiting"
	"github.com/auditrelay/auditrelay/relay/relaytest"
)

func TestOldPrefix(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	const old, young, ahead = -2 * time.Hour, -time.Minute, 365 * 24 * time.Hour
	for name, c := range map[string]struct {
		stamps []time.Duration
		keep   uint64
	}{
		"none":                        {nil, 10},
		"old, then young":             {[]time.Duration{old, old, young}, 12},
		"all young":                   {[]time.Duration{young, young}, 10},
		"all old":                     {[]time.Duration{old, old}, 12},
		"ahead, then old":             {[]time.Duration{ahead, ahead, old, young}, 13},
		"old, then ahead":             {[]time.Duration{old, ahead, ahead}, 11},
		"old, ahead, then young":      {[]time.Duration{old, ahead, young}, 11},
		"old stamps behind a young":   {[]time.Duration{young, old, old}, 10},
		"old, young, old: uncertain":  {[]time.Duration{old, young, old}, 11},
		"ahead all the time":          {[]time.Duration{ahead, ahead}, 10},
		"ahead, old, ahead and young": {[]time.Duration{ahead, old, ahead, young}, 12},
	} {
		i := -1
		keep := oldPrefix(10, now.Add(-time.Hour), now, func() (uint64, time.Time, bool) {
			if i++; i == len(c.stamps) {
				return 0, time.Time{}, false
			}
			return 10 + uint64(i), now.Add(c.stamps[i]), true
		})
		assert.Equal(t, c.keep, keep, name)
	}
}

func TestAgesGoByTheProcessesOwnClock(t *testing.T) {
	t.Parallel()
	var a ages
	now := moment{wall: time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)}
	const window = time.Hour
	pass := func(d, jump time.Duration) moment { // the wall clock is set as well
		now = moment{now.wall.Add(d + jump), now.up + d}
		return now
	}
	a.begin(5, now)
	for i := range uint64(90) {
		jump := time.Duration(0)
		if i%3 == 0 {
			jump = time.Duration(int64(i)-45) * 24 * time.Hour
		}
		a.see(100+i, pass(time.Minute, jump))
	}
	assert.Equal(t, uint64(100+29), a.olderThan(window, now), "as of an hour ago")
	assert.Equal(t, uint64(5), a.inherited())
	assert.Equal(t, uint64(189), a.olderThan(window, pass(time.Hour, -1000*time.Hour)))

	for i := range uint64(10_000) {
		a.see(1000+i, pass(time.Second, 0))
	}
	assert.LessOrEqual(t, len(a.seen), maxSightings)
	assert.InDelta(t, 11_000-3600, a.olderThan(window, now), 8)
}

func TestTheEarlierOfTwoClocksCounts(t *testing.T) {
	t.Parallel()
	began := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	a := ages{begun: sighting{at: moment{began, time.Second}}}
	later := func(wall time.Duration) moment { return moment{began.Add(wall), time.Second + time.Hour} }
	assert.Equal(t, began.Add(time.Hour), a.steady(later(time.Hour)))
	assert.Equal(t, began.Add(time.Hour), a.steady(later(1000*time.Hour)), "the wall clock was set ahead")
	assert.Equal(t, began.Add(-time.Hour), a.steady(later(-time.Hour)), "the wall clock was set back")
}

// A process trims what it has seen for long enough, whatever the stamps say; and
// the next one goes by the stamps.
func TestAgedRecordsAreTrimmedInThisLifeAndTheNext(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	j := open(t, dir, testConfig)
	s := j.source(t, "k")
	for i := range 4 {
		j.push(t, relaytest.Events(1, relaytest.From(i)))
	}
	read(t, s, 4, true)
	s.Close()
	waiting.Until(t, func() bool { at, err := j.delivered(t.Context()); return err == nil && at == 4 })
	now := thisMoment()
	trimmed := func(j *opened, now moment) uint64 {
		n, err := j.trimAged(t.Context(), now)
		require.NoError(t, err)
		return n
	}
	assert.Zero(t, trimmed(j, now))
	assert.Zero(t, trimmed(j, moment{now.wall.Add(1000 * time.Hour), now.up}), "the wall clock was set ahead")
	third, err := j.stream.GetMsg(t.Context(), 3)
	require.NoError(t, err)
	j.shut(t)

	j = open(t, dir, testConfig)
	now = thisMoment()
	assert.Zero(t, trimmed(j, now))
	n, err := j.stampedBefore(t.Context(), 1, 5, third.Time, time.Now())
	require.NoError(t, err)
	assert.Equal(t, uint64(3), n)
	n, err = j.stampedBefore(t.Context(), 1, 5, third.Time.Add(time.Hour), third.Time.Add(-time.Nanosecond))
	require.NoError(t, err)
	assert.Equal(t, uint64(3), n, "what is stamped later than now says nothing")
	past := testConfig.ReplayWindow + time.Minute
	assert.Equal(t, uint64(4), trimmed(j, moment{now.wall.Add(past), now.up + past}))
	j.shut(t)
}
