package health

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

// officeHours is rate in the office hours of a place with summer time.
func officeHours(rate float64) pushes {
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

// sizes returns the number of events of a push.
type sizes func(r *rand.Rand, at time.Time) int64

func ten(*rand.Rand, time.Time) int64 { return 10 }

// spread are log-normal sizes, with a mean far above the median.
func spread(sigma float64) sizes {
	return func(r *rand.Rand, _ time.Time) int64 { return 1 + int64(10*math.Exp(sigma*r.NormFloat64())) }
}

// daily are large in the office hours, and 1 at night.
func daily(r *rand.Rand, at time.Time) int64 {
	if h := at.In(berlin).Hour(); h < 8 || h > 17 {
		return 1
	}
	return 50 + r.Int64N(100)
}

// batched has a huge push each Sunday at 3.
func batched() sizes {
	last := 0
	return func(_ *rand.Rand, at time.Time) int64 {
		if at.Weekday() == time.Sunday && at.Hour() == 3 && at.YearDay() != last {
			last = at.YearDay()
			return 1_000_000
		}
		return 10
	}
}

// halved halves the rate of every second weekend, and of two weeks in summer.
func halved(rate float64) pushes {
	return poisson(rate, func(t time.Time) float64 {
		_, week := t.ISOWeek()
		if weekend := t.Weekday() == time.Saturday || t.Weekday() == time.Sunday; weekend && week%2 == 0 || week == 29 || week == 30 {
			return rate / 2
		}
		return rate
	})
}

// simulated is a kind of environment, made again for each life of it.
type simulated struct {
	name  string
	make  func() pushes
	cheap bool         // to simulate
	sizes func() sizes // nil: ten
}

func simulatedEnvironments() []simulated {
	day := func(t time.Time) float64 {
		return 33 * (1 + .8*math.Sin(float64(t.Unix()%86400)/86400*2*math.Pi))
	}
	growing := func(t time.Time) float64 { return 6 * math.Exp2(t.Sub(start).Hours()/24/60) }
	return []simulated{
		{"3 a day", func() pushes { return constant(3. / 24) }, true, nil},
		{"10 a day", func() pushes { return constant(10. / 24) }, true, nil},
		{"1 an hour", func() pushes { return constant(1) }, true, nil},
		{"1 a minute", func() pushes { return constant(60) }, false, nil},
		{"1 a second", func() pushes { return constant(3600) }, false, nil},
		{"day and night, 33 an hour", func() pushes { return poisson(60, day) }, false, nil},
		{"office hours, 10 an hour", func() pushes { return officeHours(10) }, true, nil},
		{"office hours, 60 an hour", func() pushes { return officeHours(60) }, false, nil},
		{"office hours, bursts", func() pushes { return clustered(officeHours(10), 20, 3) }, false, nil},
		{"bursts, 2 a day", func() pushes { return clustered(constant(2./24), 30, 60) }, true, nil},
		{"bursts, 3 an hour", func() pushes { return clustered(constant(3), 20, 3) }, false, nil},
		{"batch each night", func() pushes { return batch(24 * time.Hour) }, true, nil},
		{"batch each week", func() pushes { return batch(7 * 24 * time.Hour) }, true, nil},
		{"doubling each 60 days", func() pushes { return poisson(600, growing) }, false, nil},
		{"heavy tail, log-normal", func() pushes { return lognormal }, false, nil},
		{"20 an hour, sizes log-normal", func() pushes { return constant(20) }, true, func() sizes { return spread(2) }},
		{"20 an hour, sizes wild", func() pushes { return constant(20) }, true, func() sizes { return spread(3) }},
		{"20 an hour, large by day", func() pushes { return constant(20) }, true, func() sizes { return daily }},
		{"20 an hour, a huge push a week", func() pushes { return constant(20) }, true, batched},
		{"some weekends halved, 30 an hour", func() pushes { return halved(30) }, true, nil},
		{"each minute", func() pushes { return heartbeat }, false, nil},
	}
}

// life is the outcome of some time.
type life struct {
	alarms int // of silence
	thin   int // of a drought, outside of a silence
	last   time.Time
	first  time.Time // the first moment with a bound on silence
}

// simulate passes time from a push on, and counts false alarms.
func simulate(m *Rhythm, r *rand.Rand, p pushes, last, end time.Time) life {
	return simulateWith(m, r, p, ten, last, end)
}

func simulateWith(m *Rhythm, r *rand.Rand, p pushes, of sizes, last, end time.Time) (l life) {
	for {
		at := p(r, last)
		if l.last = last; at.After(end) {
			return l
		}
		if at.Sub(last) > leastSilence || l.first.IsZero() {
			silent, ok := m.SilentAfter(last)
			if ok && l.first.IsZero() {
				l.first = last
			}
			if ok && silent.Before(at) {
				l.alarms++
			}
		}
		_, _, before := m.Reduced()
		m.Observe(last, at, of(r, at), 1)
		if _, _, after := m.Reduced(); after && !before {
			l.thin++
		}
		last = at
	}
}

func seeded(seed int) *rand.Rand { return rand.New(rand.NewPCG(uint64(seed), 1)) } //nolint:gosec // not for secrets

// TestFalseAlarms lives years of each kind of environment. All cross a change to and from
// summer time. For the figures of deploy/health.md: go test -run FalseAlarms -v -years 10
func TestFalseAlarms(t *testing.T) {
	t.Parallel()
	total := 0
	for _, e := range simulatedEnvironments() {
		if *years == 0 && !e.cheap {
			continue
		}
		lives, days := max(*years, 1), 365
		if *years == 0 {
			days = 100
		}
		if testing.Short() {
			days = 30
		}
		alarms, thin, grace, learnt := 0, 0, time.Duration(0), 0
		for seed := range lives {
			m := &Rhythm{}
			of := ten
			if e.sizes != nil {
				of = e.sizes()
			}
			l := simulateWith(m, seeded(seed), e.make(), of, start, start.AddDate(0, 0, days))
			alarms, thin = alarms+l.alarms, thin+l.thin
			if !l.first.IsZero() {
				grace, learnt = grace+l.first.Sub(start), learnt+1
			}
		}
		total += alarms + thin
		if *years > 0 {
			assert.LessOrEqual(t, alarms+thin, *years, e.name)
		}
		t.Logf("%-32s %d false alarms of silence, %d of a drought in %d lives; watched after %.1f days in %d of them",
			e.name, alarms, thin, lives, grace.Hours()/24/max(float64(learnt), 1), learnt)
	}
	if *years == 0 {
		assert.LessOrEqual(t, total, 1, "in 100 days of each, or 30 in a short run")
	}
}
