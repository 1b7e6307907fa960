package received

import "time"

// Totals count since the book was made.
type Totals struct{ Pushes, Events, Bytes, Duplicates int64 }

// Own returns the counts of what this relay took itself.
func (e *Environment) Own() Totals {
	e.mu.Lock()
	defer e.mu.Unlock()
	return Totals{
		e.totals.Pushes - e.others.Pushes, e.totals.Events - e.others.Events, e.totals.Bytes - e.others.Bytes, e.totals.Duplicates - e.others.Duplicates,
	}
}

// Snapshot is the state of an environment's arrivals at one moment.
type Snapshot struct {
	Totals
	// LastPush is the time of the last push of new or repeated events; zero for none.
	LastPush time.Time
	// LastNew is the last one with a new event.
	LastNew time.Time
	// LastEvent is the newest time of an event, by its sender's word, and not after its
	// arrival; zero for none.
	LastEvent time.Time
	// Looked is when a foreign destination last gave its newest event; zero for pushes to
	// this relay.
	Looked time.Time
	// EventsPerSecond is the mean of the last minute, or since the book was made.
	EventsPerSecond float64
	// Lateness is the median, the 90th and the 99th percentile of arrival minus event
	// time, in seconds: of the new events of the last ten minutes. NaN without any.
	Lateness [3]float64
	// LatenessSum is the sum over all events, in seconds.
	LatenessSum float64
	// Clock is what the newest pushes show of their sender's clock.
	Clock Clock
	// Refusals has each of [Reasons].
	Refusals map[string]Refusals
}

// Snapshot returns the present state.
func (e *Environment) Snapshot() Snapshot {
	elapsed := e.book.now().Sub(e.book.start)
	e.mu.Lock()
	defer e.mu.Unlock()
	s := Snapshot{
		Totals: e.totals, LastPush: e.lastPush, LastNew: e.lastNew, Looked: e.looked,
		EventsPerSecond: e.rate.perSecond(elapsed),
		Lateness:        e.lateness.quantiles(elapsed),
		LatenessSum:     e.late,
		Clock:           e.clock.shows(),
		Refusals:        make(map[string]Refusals, len(reasons)),
	}
	if e.newest != 0 {
		s.LastEvent = time.Unix(0, e.newest)
	}
	for i, reason := range reasons {
		s.Refusals[reason] = e.refusals[i]
	}
	return s
}

// rateSeconds is the span of the rate.
const rateSeconds = 60

// rate counts the events of the last minute, by second.
type rate struct {
	events [rateSeconds]int64
	at     [rateSeconds]int64 // the second of each count, from 1
	latest int64
}

func (r *rate) second(elapsed time.Duration) int64 {
	return max(r.latest, int64(elapsed/time.Second)+1)
}

func (r *rate) add(elapsed time.Duration, events int64) {
	r.latest = r.second(elapsed)
	i := r.latest % rateSeconds
	if r.at[i] != r.latest {
		r.at[i], r.events[i] = r.latest, 0
	}
	r.events[i] += events
}

func (r *rate) perSecond(elapsed time.Duration) float64 {
	now, sum := r.second(elapsed), int64(0)
	for i, at := range r.at {
		if at > now-rateSeconds {
			sum += r.events[i]
		}
	}
	return float64(sum) / float64(min(now, rateSeconds))
}
