package rhythm

import (
	"flag"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

var years = flag.Int("years", 0, "simulated years of each environment; 0 for some months of the cheap ones")

// start is a Monday, at midnight.
var start = time.Date(2025, 1, 6, 0, 0, 0, 0, time.UTC)

// pushes returns the time of the push after one.
type pushes func(r *rand.Rand, last time.Time) time.Time

// poisson pushes at a rate in pushes an hour, below most.
func poisson(most float64, rate func(time.Time) float64) pushes {
	return func(r *rand.Rand, at time.Time) time.Time {
		for {
			at = at.Add(time.Duration(r.ExpFloat64() / most * float64(time.Hour)))
			if r.Float64()*most < rate(at) {
				return at
			}
		}
	}
}

func constant(rate float64) pushes {
	return poisson(rate, func(time.Time) float64 { return rate })
}

// clustered makes each push of p the first of several, seconds apart.
func clustered(p pushes, mean, apart float64) pushes {
	left := 0.
	var next time.Time
	return func(r *rand.Rand, at time.Time) time.Time {
		if left >= 1 {
			left--
			if n := at.Add(time.Duration(r.ExpFloat64() * apart * 1e9)); next.IsZero() || n.Before(next) {
				return n
			}
		}
		left = r.ExpFloat64() * mean
		if next.Before(at) {
			next = p(r, at)
		}
		n := next
		next = p(r, n)
		return n
	}
}

var berlin, _ = time.LoadLocation("Europe/Berlin")

// office is rate in the office hours of a place with summer time.
func office(rate float64) pushes {
	return poisson(rate, func(t time.Time) float64 {
		t = t.In(berlin)
		if h := t.Hour(); h < 8 || h > 17 || t.Weekday() == time.Saturday || t.Weekday() == time.Sunday {
			return 0
		}
		return rate
	})
}

// batch pushes 100 times, from a minute between 02:00 and 02:20 on.
func batch(every time.Duration) pushes {
	left := 0
	return func(r *rand.Rand, at time.Time) time.Time {
		if left > 0 {
			left--
			return at.Add(time.Duration(1+r.IntN(4)) * time.Second)
		}
		left = 100
		return at.Truncate(every).Add(every + 2*time.Hour + time.Duration(r.Float64()*float64(20*time.Minute)))
	}
}

func lognormal(r *rand.Rand, at time.Time) time.Time {
	return at.Add(time.Duration(math.Exp(2*r.NormFloat64()) * 1e10))
}

func heartbeat(r *rand.Rand, at time.Time) time.Time {
	return at.Add(time.Minute + time.Duration(r.Float64()*1e9))
}

// environment is a kind of environment, made anew for each life of it.
type environment struct {
	name  string
	make  func() pushes
	cheap bool // to simulate
}

func environments() []environment {
	day := func(t time.Time) float64 {
		return 33 * (1 + .8*math.Sin(float64(t.Unix()%86400)/86400*2*math.Pi))
	}
	growing := func(t time.Time) float64 { return 6 * math.Exp2(t.Sub(start).Hours()/24/60) }
	return []environment{
		{"3 a day", func() pushes { return constant(3. / 24) }, true},
		{"10 a day", func() pushes { return constant(10. / 24) }, true},
		{"1 an hour", func() pushes { return constant(1) }, true},
		{"1 a minute", func() pushes { return constant(60) }, false},
		{"1 a second", func() pushes { return constant(3600) }, false},
		{"day and night, 33 an hour", func() pushes { return poisson(60, day) }, false},
		{"office hours, 10 an hour", func() pushes { return office(10) }, true},
		{"office hours, 60 an hour", func() pushes { return office(60) }, false},
		{"office hours, bursts", func() pushes { return clustered(office(10), 20, 3) }, false},
		{"bursts, 2 a day", func() pushes { return clustered(constant(2./24), 30, 60) }, true},
		{"bursts, 3 an hour", func() pushes { return clustered(constant(3), 20, 3) }, false},
		{"batch each night", func() pushes { return batch(24 * time.Hour) }, true},
		{"batch each week", func() pushes { return batch(7 * 24 * time.Hour) }, true},
		{"doubling each 60 days", func() pushes { return poisson(600, growing) }, false},
		{"heavy tail, log-normal", func() pushes { return lognormal }, false},
		{"each minute", func() pushes { return heartbeat }, false},
	}
}

// life is the outcome of some time.
type life struct {
	alarms int
	last   time.Time
	first  time.Time // the first moment with a bound on silence
}

// live passes time from a push on, and counts false alarms.
func live(m *Model, r *rand.Rand, p pushes, last, end time.Time) (l life) {
	for {
		at := p(r, last)
		if l.last = last; at.After(end) {
			return l
		}
		if at.Sub(last) > floor || l.first.IsZero() {
			silent, ok := m.SilentAfter(last)
			if ok && l.first.IsZero() {
				l.first = last
			}
			if ok && silent.Before(at) {
				l.alarms++
			}
		}
		m.Observe(last, at, 10, 1)
		last = at
	}
}

func seeded(seed int) *rand.Rand { return rand.New(rand.NewPCG(uint64(seed), 1)) } //nolint:gosec // not for secrets

// TestFalseAlarms lives years of each kind of environment. All cross a change to and from
// summer time. For the figures of deploy/health.md: go test -run FalseAlarms -v -years 10
func TestFalseAlarms(t *testing.T) {
	t.Parallel()
	total := 0
	for _, e := range environments() {
		if *years == 0 && !e.cheap {
			continue
		}
		lives, days := max(*years, 1), 365
		if *years == 0 {
			days = 100
		}
		alarms, grace, learnt := 0, time.Duration(0), 0
		for seed := range lives {
			m := &Model{}
			l := live(m, seeded(seed), e.make(), start, start.AddDate(0, 0, days))
			alarms += l.alarms
			if !l.first.IsZero() {
				grace, learnt = grace+l.first.Sub(start), learnt+1
			}
		}
		total += alarms
		if *years > 0 {
			assert.LessOrEqual(t, alarms, *years, e.name)
		}
		t.Logf("%-26s %d false alarms in %d lives; watched after %.1f days in %d of them",
			e.name, alarms, lives, grace.Hours()/24/max(float64(learnt), 1), learnt)
	}
	if *years == 0 {
		assert.LessOrEqual(t, total, 1, "in 100 days of each")
	}
}
