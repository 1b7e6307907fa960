package health

import (
	"fmt"
	"math"
	"slices"
	"time"
)

// Gap is a time without good pushes, and with probable losses.
type Gap struct {
	// Cause is the state in it, or [CauseRelayDown]; Reason says it in words.
	Cause  string `json:"cause"`
	Reason string `json:"reason"`
	// Begun is the first refusal, or else the last arrival before it. Ended is the first
	// good push behind it, or when the cause was seen mended; zero: it is open.
	Begun time.Time `json:"begun"`
	Ended time.Time `json:"ended,omitzero"`
	// EventsExpected is the number of events usual for such a time, EventsLate how many
	// happened in it and arrived afterwards. EventsLost is the estimate: the difference.
	EventsExpected int64 `json:"events_expected"`
	EventsLate     int64 `json:"events_late"`
	EventsLost     int64 `json:"events_lost"`
	// RefusedBy is the reason of a [Refused] cause, of internal/arrivals; RefusedPushes counts
	// the refused ones in it.
	RefusedBy     string `json:"refused_by,omitempty"`
	RefusedPushes int64  `json:"refused_pushes"`
	// EstimatedBy is [ByRhythm], [ByRecentRate], or empty where nothing is known.
	EstimatedBy string `json:"estimated_by,omitempty"`
}

// lost tells the estimate.
func (g *Gap) lost() string {
	switch {
	case g.EventsLost == 1 && g.EstimatedBy == "":
		return "at least 1 event was lost; how many is not known, as none had come before:"
	case g.EventsLost == 1:
		return "about 1 event was lost"
	}
	return fmt.Sprintf("about %d events were lost", g.EventsLost)
}

// CauseRelayDown is the cause of a gap by the relay's own downtime.
const CauseRelayDown = "relay_down"

// The sources of an estimate.
const (
	// ByRhythm: as usual at this hour of the week.
	ByRhythm = "rhythm"
	// ByRecentRate: the rate of the minutes before, as no rhythm is known.
	ByRecentRate = "recent_rate"
)

// maxGaps bounds the settled gaps kept of an environment.
const maxGaps = 10

// gaps follows the gaps of one environment.
type gaps struct {
	// now is open, or has ended and is not settled: late events still lower its estimate.
	// Nil: there is none.
	now *Gap
	// late and refused are the counts of now from earlier runs, refusedBefore the refused
	// pushes of this run before it.
	late, refused, refusedBefore int64
	// arrived counts this run's events outside of now, at its end; so those behind the end
	// are known if it goes on.
	arrived  int64
	losing   time.Time // when a verdict last meant a loss, in this run
	settleAt time.Time // zero: no good push has come since its end
	settled  []Gap     // the newest last, at most maxGaps
	due      []Gap     // of those, not in the trail yet
	lost     int64     // the sum of this run
}

// newest is the newest gap with an end, nil for none. After its own downtime, the relay
// waits for the provider's further attempts before it speaks of a loss.
func (g *gaps) newest() *Gap {
	switch {
	case g.now != nil && !g.now.Ended.IsZero() && g.now.EventsLost > 0 && g.now.Cause != CauseRelayDown:
		return g.now
	case len(g.settled) > 0:
		return &g.settled[len(g.settled)-1]
	}
	return nil
}

// open returns the present gap, nil for none.
func (g *gaps) open() *Gap {
	if g.now == nil || !g.now.Ended.IsZero() {
		return nil
	}
	return g.now
}

// ended lists the gaps with an end, the newest last; the relay's own downtime once it is
// settled.
func (g *gaps) ended() []Gap {
	all := append([]Gap{}, g.settled...)
	if g.now != nil && !g.now.Ended.IsZero() && g.now.Cause != CauseRelayDown {
		all = append(all, *g.now)
	}
	return last(all, maxGaps)
}

// follow opens, measures, ends and settles the gap, by the verdict of this moment. fresh:
// the API was read lately.
func (w *watch) follow(v Verdict, fresh bool, now time.Time) {
	g := &w.gaps
	if v.State.loses() {
		w.lose(v)
		g.losing = now
	}
	if g.now == nil {
		return
	}
	if v.State.arrives() && g.now.Ended.IsZero() && w.mended(fresh) {
		w.end(now)
	}
	w.measure(now)
	switch {
	case g.now.Ended.IsZero():
	case g.settleAt.IsZero() && w.arrivals.LastPush.After(g.now.Begun):
		g.settleAt, w.changed = now.Add(w.settle), true
	case !g.settleAt.IsZero() && !now.Before(g.settleAt):
		w.close()
	}
}

// mended reports whether the open gap is over: a push has come since, or the API shows the
// cause mended. The end of all evidence, as after a restart, is no end of a gap.
func (w *watch) mended(fresh bool) bool {
	push, after := w.arrivals.LastPush, w.gaps.losing
	if w.gaps.now.Cause == string(Silent) {
		push = w.arrivals.LastNew
	}
	if !w.arrivals.Looked.IsZero() { // at a foreign destination: it is found later
		after = w.gaps.now.Begun
	}
	return !push.IsZero() && !push.Before(after) || fresh && w.gaps.now.Cause != string(Silent) && w.gaps.now.Cause != string(Refused)
}

// lose opens a gap, unless one is open. An unsettled one goes on: later arrivals are
// counted by their event time.
func (w *watch) lose(v Verdict) {
	g := &w.gaps
	switch {
	case g.now == nil && w.lastPush.IsZero() && v.State != Refused:
		return // nothing has come yet, so nothing is expected
	case g.now == nil:
		w.begin(Gap{Cause: string(v.State), Reason: v.Reason, Begun: w.lastGood(v)}, v)
	case !g.now.Ended.IsZero():
		g.late += w.outside() - g.arrived
		g.now.Ended, g.settleAt, w.changed = time.Time{}, time.Time{}, true
		w.page.CountBetween(g.now.Begun, time.Time{})
	}
	if v.State != Silent && (g.now.Cause == string(Silent) || g.now.Cause == CauseRelayDown) { // the cause shows
		g.now.Cause, g.now.Reason, g.now.RefusedBy = string(v.State), v.Reason, v.refusedBy
	}
}

// lastGood is the last push before a loss. A silence begins behind the last new event.
func (w *watch) lastGood(v Verdict) time.Time {
	if v.State == Silent {
		return w.lastNew
	}
	return w.lastPush
}

func (w *watch) begin(g Gap, v Verdict) {
	if v.State == Refused {
		g.Begun = v.Since
	}
	g.RefusedBy = v.refusedBy
	w.gaps.now, w.gaps.settleAt = &g, time.Time{}
	w.gaps.late, w.gaps.refused, w.gaps.refusedBefore = 0, 0, w.refusedAtLastPush
	w.page.CountBetween(g.Begun, time.Time{})
	w.changed = true
}

func (w *watch) end(now time.Time) {
	g := w.gaps.now
	if g.Ended = now; w.arrivals.LastPush.After(g.Begun) {
		g.Ended = w.arrivals.LastPush
	}
	w.page.CountBetween(g.Begun, g.Ended)
	w.expect(g, g.Ended)
	w.gaps.arrived, w.changed = w.outside(), true
}

// outside counts this run's events outside the gap.
func (w *watch) outside() int64 { return w.arrivals.Events - w.arrivals.Between }

// measure estimates the events lost in the gap up to its end, or to now. The expected
// number is not looked up again after the end: the rhythm has learnt from the silence by
// then.
func (w *watch) measure(now time.Time) {
	g := w.gaps.now
	switch {
	case g.Ended.IsZero():
		g.RefusedPushes = w.gaps.refused + w.refusedPushes() - w.gaps.refusedBefore
		w.expect(g, now)
	case g.Cause == CauseRelayDown: // its beginning may have changed
		w.expect(g, g.Ended)
	}
	g.EventsLate = w.gaps.late + w.arrivals.Between
	g.EventsLost = max(0, g.EventsExpected-g.EventsLate)
	if g.arrivedAfterAll() && float64(g.EventsLost) < noise(g.EventsExpected) {
		g.EventsLost = 0
	}
	if g.refusedForGood() && g.RefusedPushes > 0 {
		g.EventsLost = max(g.EventsLost, 1) // a refused push has at least one event
	}
}

// arrivedAfterAll reports whether the events of the gap probably arrived all the same: the
// provider sends them again after the relay's downtime, and may push in spite of a declared
// DISABLED. A push refused for good is no doubt a loss.
func (g *Gap) arrivedAfterAll() bool {
	return g.Cause == CauseRelayDown || !g.refusedForGood() && 2*g.EventsLate > g.EventsExpected
}

// refusedForGood reports whether the sender drops the refused pushes.
func (g *Gap) refusedForGood() bool {
	return g.Cause == string(Refused) && !slices.Contains(sentAgain, g.RefusedBy)
}

// noise is the usual error of an estimate: by chance, and by the grain of lateness.
func noise(expected int64) float64 { return 2*math.Sqrt(float64(expected)) + .2*float64(expected) }

// expect sets the number of events usual from the gap's beginning.
func (w *watch) expect(g *Gap, until time.Time) {
	expected, by := w.model.Expected(g.Begun, until), ByRhythm
	if expected == 0 {
		expected, by = w.recent.perSecond()*until.Sub(g.Begun).Seconds(), ByRecentRate
	}
	if expected == 0 {
		by = ""
	}
	g.EventsExpected, g.EstimatedBy = int64(math.Round(expected)), by
}

// close settles the gap. One without a loss is forgotten.
func (w *watch) close() {
	g := *w.gaps.now
	w.gaps.now, w.changed = nil, true
	w.page.CountBetween(time.Time{}, time.Time{})
	if g.EventsLost < 1 {
		return
	}
	w.gaps.settled = last(append(w.gaps.settled, g), maxGaps)
	w.gaps.due = last(append(w.gaps.due, g), maxGaps)
	w.gaps.lost += g.EventsLost
}

// last keeps the last n elements.
func last[T any](all []T, n int) []T { return all[max(0, len(all)-n):] }

// recent is the rate of the healthy minutes before, the latest counting most.
type recent struct {
	Events  float64 `json:"events"`
	Seconds float64 `json:"seconds"`
}

// After recentSpan, a minute counts a third.
const recentSpan = 600

func (r *recent) add(span time.Duration, events int64) {
	keep := math.Exp(-span.Seconds() / recentSpan)
	r.Events, r.Seconds = r.Events*keep+float64(events), r.Seconds*keep+span.Seconds()
}

func (r *recent) perSecond() float64 {
	if r.Seconds == 0 {
		return 0
	}
	return r.Events / r.Seconds
}
