package health

import (
	"math"
	"slices"
	"time"
)

const (
	hours = 7 * 24
	// leastSilence is the shortest silence to raise an alarm.
	leastSilence = 30 * time.Second
	// horizon bounds a silence. After more than this, none is an alarm.
	horizon = 4 * hours * time.Hour
)

// Rhythm is the rhythm of one environment: it learns when pushes come, by hour of week, and says how
// long a silence may last. deploy/health.md explains the model on one page.
//
// The measure of a silence is its weight: the number of pushes expected in it. So a
// night weighs little and a busy hour much. The model keeps the weights of the heaviest
// gaps between pushes, each measured before the model learnt from it. A silence is an
// alarm when a gap of its weight is expected less than once in some years.
//
// Hours are those of UTC. Each silence is measured three times, with the week as learnt,
// an hour earlier and an hour later. The least of the three counts. So a change to or
// from summer time is no alarm.
//
// The zero value has learnt nothing. It is not safe for concurrent use.
type Rhythm struct {
	learntRhythm

	// Derived from the above, when an hour ends.
	rates   [hours]rate
	yearly  float64 // bursts expected in a year
	typical float64 // events of a burst
}

// rate is the expected number of pushes in an hour of the week.
type rate struct {
	bursts float64 // at least, while it is little known
	guess  float64 // bursts, as well as known
	events float64
	known  bool // seen twice
}

// Observe learns from a span of healthy time, with the pushes in (from, to]. It is best
// to pass a span at each push, from the push before it, and no less than a second long.
// All pushes of one span count as one burst. A span without a push only adds watched time.
//
// Leave out times of refused pushes, of a disabled or misdirected stream, and of the
// relay's own absence. A silence beyond the alarm teaches little: a long outage does not
// become normal, and a slower rhythm is learnt in some days. A span running backwards, or
// longer than four weeks, is ignored.
func (m *Rhythm) Observe(from, to time.Time, events, pushes int64) {
	if to.Before(from) || to.Sub(from) > horizon || from.Unix() < 0 || events < 0 || pushes < 0 {
		return
	}
	if pushes > 0 && m.thins(from, to, events) {
		return
	}
	until, weight := to, m.weight(from, to, guessed)
	if weight > leastLimit {
		until, weight = m.bounded(from, to, weight)
	}
	closed := false
	for at := from; at.Before(until); {
		end := earlier(at.Truncate(time.Hour).Add(time.Hour), until)
		closed = m.turn(hourOf(at)) || closed
		w := m.Hours[weekHour(m.Open)].at(m.Open)
		w.Seconds = min(w.Seconds+end.Sub(at).Seconds(), 3600)
		at = end
	}
	if pushes > 0 {
		closed = m.turn(hourOf(to)) || closed
		w := m.Hours[weekHour(m.Open)].at(m.Open)
		w.Bursts++
		w.Events += float64(events)
		m.Gaps.add(weight)
	}
	if closed {
		m.derive()
	}
}

// bounded returns the part of a long silence to learn from: its end, and its weight.
func (m *Rhythm) bounded(from, to time.Time, weight float64) (time.Time, float64) {
	limit, learnt := m.Gaps.limit(m.yearly)
	if !learnt {
		return to, weight
	}
	if at, reached := m.reach(from, 2*limit); reached {
		to = earlier(to, at)
	}
	return to, min(weight, 1.25*limit)
}

// turn closes the hour under way if another one has begun.
func (m *Rhythm) turn(hour int64) bool {
	if hour == m.Open {
		return false
	}
	if r := m.rates[weekHour(m.Open)]; r.known {
		w := m.Hours[weekHour(m.Open)].at(m.Open)
		part := w.Seconds / 3600
		m.Pushes.add(w.Bursts, r.bursts*part, 3, 10)
		m.Events.add(w.Events, r.events*part, 10, 100)
	}
	m.Gaps.age()
	m.Drought.Tail.age()
	m.Open = hour
	return true
}

// derive computes the rates again.
//
// One outage or one flood in four weeks moves an hour's rate little. Until an hour of the
// week was seen twice, it counts as the quietest hour of all those seen, and as an average
// one for its events.
func (m *Rhythm) derive() {
	seen, quietest, mean := 0, math.Inf(1), 0.0
	for i := range m.Hours {
		if s := &m.Hours[i]; s.seen() > 0 {
			m.rates[i] = s.rate()
			seen++
			quietest = min(quietest, m.rates[i].bursts)
			mean += m.rates[i].events
		}
	}
	if seen < 24 {
		quietest = 0
	}
	m.yearly = 0
	for i := range m.Hours {
		if !m.rates[i].known {
			m.rates[i].bursts = quietest
		}
		if m.Hours[i].seen() == 0 && seen > 0 {
			m.rates[i].guess, m.rates[i].events = quietest, mean/float64(seen)
		}
		m.yearly += m.rates[i].bursts * 52
	}
	m.yearly *= m.slower()
	m.typical = m.typicalSize()
}

// Expected returns the number of events expected in [from, to); 0 while nothing is
// learnt.
func (m *Rhythm) Expected(from, to time.Time) float64 {
	sum := 0.0
	for at := from; at.Before(to) && at.Sub(from) < 53*hours*time.Hour; {
		end := earlier(at.Truncate(time.Hour).Add(time.Hour), to)
		sum += m.rates[weekHour(hourOf(at))].events * end.Sub(at).Hours()
		at = end
	}
	return sum * m.Events.value()
}

// SilentAfter returns when silence since the push at last becomes an alarm. It is false
// while too little is learnt, and where pushes are too rare for an alarm in four weeks.
// The alarm is false less than once in a year.
func (m *Rhythm) SilentAfter(last time.Time) (time.Time, bool) {
	limit, learnt := m.Gaps.limit(m.yearly)
	if !learnt {
		return time.Time{}, false
	}
	at, reached := m.reach(last, limit)
	if !reached {
		return time.Time{}, false
	}
	if soonest := last.Add(leastSilence); at.Before(soonest) {
		at = soonest
	}
	return at, true
}

// The two measures of a rate: as well as it is known, and at least.
func guessed(r rate) float64 { return r.guess }
func atLeast(r rate) float64 { return r.bursts }

// weight returns the pushes expected in (from, to): the least of the three shifts.
func (m *Rhythm) weight(from, to time.Time, of func(rate) float64) float64 {
	least := math.Inf(1)
	for shift := int64(-1); shift <= 1; shift++ {
		sum := 0.0
		for at := from; at.Before(to); {
			end, r := m.piece(from, at, shift)
			end = earlier(end, to)
			sum += of(r) * end.Sub(at).Hours()
			at = end
		}
		least = min(least, sum)
	}
	return least * m.slower()
}

// reach returns when a silence since from has a weight, within the horizon.
func (m *Rhythm) reach(from time.Time, weight float64) (time.Time, bool) {
	latest := from
	for shift := int64(-1); shift <= 1; shift++ {
		at, left := from, weight/m.slower()
		for left > 0 {
			end, r := m.piece(from, at, shift)
			step := r.bursts * end.Sub(at).Hours()
			if step >= left {
				end = at.Add(time.Duration(left / r.bursts * float64(time.Hour)))
			}
			left -= step
			if at = end; at.Sub(from) > horizon {
				return time.Time{}, false
			}
		}
		if at.After(latest) {
			latest = at
		}
	}
	return latest, true
}

// piece returns the rate at a time in a silence, and until when it holds. The end of a
// day's pushes is no shift: so in the silence's first hour, a week running late expects no
// more than a week on time.
func (m *Rhythm) piece(from, at time.Time, shift int64) (until time.Time, r rate) {
	hour := hourOf(at)
	until, r = at.Truncate(time.Hour).Add(time.Hour), m.rates[weekHour(hour+shift)]
	if first := from.Add(time.Hour); shift < 0 && at.Before(first) {
		here := m.rates[weekHour(hour)]
		until, r.bursts, r.guess = earlier(until, first), min(r.bursts, here.bursts), min(r.guess, here.guess)
	}
	return until, r
}

// slower is the present rhythm against the learnt one, at most 1. A faster one makes no
// alarm sooner until the weeks show it.
func (m *Rhythm) slower() float64 { return min(m.Pushes.value(), 1) }

// hourOf returns the hours since 1970.
func hourOf(t time.Time) int64 { return int64(math.Floor(float64(t.Unix()) / 3600)) }

// weekHour returns an hour's place in the week.
func weekHour(hour int64) int64 { return (hour%hours + hours) % hours }

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// weeks is the number of past hours in a slot.
const weeks = 4

// slot has the last hours of one hour of the week, the newest first.
type slot [weeks]pastHour

// pastHour is one of them. An hour watched for less than half of it teaches nothing.
type pastHour struct {
	Hour    int64   `json:"h,omitempty"` // since 1970; 0 for none
	Seconds float64 `json:"s,omitempty"`
	Bursts  float64 `json:"b,omitempty"`
	Events  float64 `json:"e,omitempty"`
}

// at returns the entry of an hour, and makes it. Hours after it go: then the clock was
// ahead.
func (s *slot) at(when int64) *pastHour {
	for range s {
		if s[0].Hour > when {
			copy(s[:], s[1:])
			s[weeks-1] = pastHour{}
		}
	}
	if s[0].Hour != when {
		copy(s[1:], s[:weeks-1])
		s[0] = pastHour{Hour: when}
	}
	return &s[0]
}

func (s *slot) seen() (n int) {
	for _, h := range s {
		if h.Seconds >= 1800 {
			n++
		}
	}
	return n
}

// prior are the bursts expected in an hour of the week without any, before it is seen.
const prior = .05

// rate is the mean of the hours seen. Each counts at most three times the median, or one
// event more, so a single flood is not expected again.
func (s *slot) rate() rate {
	var bursts, events [weeks]float64
	n := 0
	for _, h := range s {
		if h.Seconds >= 1800 {
			bursts[n], events[n] = h.Bursts*3600/h.Seconds, h.Events*3600/h.Seconds
			n++
		}
	}
	if n == 0 {
		return rate{}
	}
	mean := (prior + trimmed(bursts[:n])) / float64(n)
	return rate{mean, mean, trimmed(events[:n]) / float64(n), n >= 2}
}

// trimmed is the sum of values, without any far above the lower median.
func trimmed(values []float64) (sum float64) {
	slices.Sort(values)
	most := 3*values[(len(values)-1)/2] + 1
	for _, v := range values {
		sum += min(v, most)
	}
	return sum
}

// level is the present rhythm against the learnt one, mostly of the last day: so a real
// change is followed long before the weeks show it.
type level struct {
	Seen     float64 `json:"seen"`
	Expected float64 `json:"expected"`
}

// After levelHalf watched hours, an hour counts half.
const levelHalf = 24

// add adds an hour. It counts at most `times` the expected number, or a bit more.
func (l *level) add(seen, expected, times, more float64) {
	kept := math.Exp2(-1. / levelHalf)
	l.Seen = l.Seen*kept + min(seen, times*expected+more)
	l.Expected = l.Expected*kept + expected
}

// value is 1 while little is known.
func (l *level) value() float64 {
	const steady = 10
	return min(max((l.Seen+steady)/(l.Expected+steady), .01), 100)
}
