package health

import (
	"cmp"
	"slices"
	"time"
)

// drought follows pushes that still arrive, but bring far fewer events than usual. It is
// Page's CUSUM in the time of the rhythm: its depth grows by the bursts expected between two
// pushes, each push takes off what it brought, [enough] times over, and it is never below 0.
// So it grows once less than one event in `enough` arrives, until the rhythm has learnt the fewer
// ones, and else returns to 0 soon, however irregular the pushes are. Traffic that halves is no
// drought.
//
// The deepest point of each drought goes into a tail of its own, as a gap's weight does. So
// the limit follows the environment's own droughts.
type drought struct {
	Depth float64   `json:"depth"`
	Peak  float64   `json:"peak"`
	Since time.Time `json:"since,omitzero"` // when the depth was 0 last
	Noted time.Time `json:"noted,omitzero"` // when it passed the limit; zero: it has not
	Came  float64   `json:"came"`           // its events so far
	Tail  tail      `json:"tail"`
}

const (
	// enough is the reciprocal of the share of the usual events that is far too little.
	enough = 5
	// heaviestSpan is the most that one span counts. A long one is a silence, and with usual
	// pushes after it no drought.
	heaviestSpan = leastLimit
	// droughtFloor is the shortest drought to raise an alarm.
	droughtFloor = time.Minute
	// droughtUntaught is how long a drought teaches nothing after its alarm. Afterwards it is
	// learnt as a slower rhythm.
	droughtUntaught = 24 * time.Hour
)

// Reduced returns since when far fewer events than usual arrive, and how many came all the
// same; false if the events are no fewer. It changes at a push: a time without any is a silence.
// The alarm is false less than once in a year.
func (m *Rhythm) Reduced() (since time.Time, came int64, reduced bool) {
	return m.Drought.Since, int64(m.Drought.Came), !m.Drought.Noted.IsZero()
}

// Forget ends a drought that has another explanation.
func (m *Rhythm) Forget() { m.Drought = drought{Tail: m.Drought.Tail} }

// thins lets the drought take a span with a push at its end. It reports whether the span is of
// a drought that must not be learnt.
func (m *Rhythm) thins(from, to time.Time, events int64) (untaught bool) {
	d := &m.Drought
	weight, brought := min(m.weight(from, to, atLeast), heaviestSpan), m.brought(to, events)
	limit, learnt := 0., false
	if d.Depth+weight > leastLimit { // else it is below any limit
		limit, learnt = d.Tail.limit(m.yearly)
	}
	if d.Depth == 0 {
		d.Since, d.Peak, d.Came = from, 0, 0
	}
	d.Tail.Weight, d.Came = d.Tail.Weight+weight, d.Came+float64(events)
	if d.Depth = max(0, d.Depth+weight-enough*brought); learnt {
		d.Depth = min(d.Depth, 1.25*limit) // so that it ends soon
	}
	d.Peak = max(d.Peak, d.Depth)
	switch {
	case d.Depth == 0:
		d.Tail.count(d.Peak)
		d.Since, d.Noted = time.Time{}, time.Time{}
	case learnt && d.Depth > limit && d.Noted.IsZero() && to.Sub(d.Since) >= droughtFloor:
		d.Noted = to
	}
	return !d.Noted.IsZero() && to.Sub(d.Noted) < droughtUntaught
}

// brought measures a push in usual ones, by its events.
func (m *Rhythm) brought(at time.Time, events int64) float64 {
	usual := m.typical
	for shift := int64(-1); shift <= 1; shift++ {
		if r := m.rates[weekHour(hourOf(at)+shift)]; r.known {
			usual = min(usual, r.size())
		}
	}
	usual *= min(1, m.Events.value()/m.Pushes.value())
	if usual == 0 { // of pushes without events, as at a foreign destination
		return 1
	}
	return float64(events) / usual
}

// size is the number of events in a burst; 0 if none is expected.
func (r rate) size() float64 {
	if r.guess == 0 {
		return 0
	}
	return r.events / r.guess
}

// typicalSize is the median of the sizes over all bursts: so one huge batch a week is not
// taken for usual.
func (m *Rhythm) typicalSize() float64 {
	type weighed struct{ size, bursts float64 }
	var all []weighed
	total := 0.0
	for i := range m.Hours {
		if r := m.rates[i]; m.Hours[i].seen() > 0 {
			all, total = append(all, weighed{r.size(), r.guess}), total+r.guess
		}
	}
	slices.SortFunc(all, func(a, b weighed) int { return cmp.Compare(a.size, b.size) })
	for _, w := range all {
		if total -= 2 * w.bursts; total <= 0 {
			return w.size
		}
	}
	return 0
}
