package ages

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestPrefix(t *testing.T) {
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
		p := Prefix{Keep: 10, Before: now.Add(-time.Hour), Now: now}
		for i, stamp := range c.stamps {
			if !p.Add(10+uint64(i), now.Add(stamp)) {
				break
			}
		}
		assert.Equal(t, c.keep, p.Keep, name)
	}
}

func TestAgesGoByTheProcessesOwnClock(t *testing.T) {
	t.Parallel()
	var a Ages
	now := Moment{Wall: time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)}
	const window = time.Hour
	pass := func(d, jump time.Duration) Moment { // the wall clock is set as well
		now = Moment{now.Wall.Add(d + jump), now.Up + d}
		return now
	}
	a.Begin(5, now)
	for i := range uint64(90) {
		jump := time.Duration(0)
		if i%3 == 0 {
			jump = time.Duration(int64(i)-45) * 24 * time.Hour
		}
		a.See(100+i, pass(time.Minute, jump))
	}
	assert.Equal(t, uint64(100+29), a.OlderThan(window, now), "as of an hour ago")
	assert.Equal(t, uint64(5), a.Inherited())
	assert.Equal(t, uint64(189), a.OlderThan(window, pass(time.Hour, -1000*time.Hour)))

	for i := range uint64(10_000) {
		a.See(1000+i, pass(time.Second, 0))
	}
	assert.LessOrEqual(t, len(a.seen), maxSightings)
	assert.InDelta(t, 11_000-3600, a.OlderThan(window, now), 8)
}

func TestTheEarlierOfTwoClocksCounts(t *testing.T) {
	t.Parallel()
	began := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	a := Ages{begun: sighting{at: Moment{began, time.Second}}}
	later := func(wall time.Duration) Moment { return Moment{began.Add(wall), time.Second + time.Hour} }
	assert.Equal(t, began.Add(time.Hour), a.Steady(later(time.Hour)))
	assert.Equal(t, began.Add(time.Hour), a.Steady(later(1000*time.Hour)), "the wall clock was set ahead")
	assert.Equal(t, began.Add(-time.Hour), a.Steady(later(-time.Hour)), "the wall clock was set back")
}
