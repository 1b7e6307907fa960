package health

import (
	"fmt"
	"math"
	"slices"
	"time"
)

// Gap is a time without good pushes, or with far too few events, and with probable losses.
type Gap struct {
	// Cause is the state in it, or [CauseRelayDown]; Reason says it in words.
	Cause  string `json:"cause"`
	Reason string `json:"reason"`
	// Begun is the first refusal, or else the last arrival before it. Ended is the first
	// good push after it, or when the cause was seen mended; zero: it is open.
	Begun time.Time `json:"begun"`
	Ended time.Time `json:"ended,omitzero"`
	// EventsExpected is the number of events usual for such a time, EventsLate how many of
	// it arrived all the same, mostly later. EventsLost is the estimate: the difference.
	// The truth lies between EventsLostLeast and EventsLostMost, as far as can be told.
	EventsExpected  int64 `json:"events_expected"`
	EventsLate      int64 `json:"events_late"`
	EventsLost      int64 `json:"events_lost"`
	EventsLostLeast int64 `json:"events_lost_least"`
	EventsLostMost  int64 `json:"events_lost_most"`
	// RefusedBy is the reason of a [Refused] cause, of internal/ingest/received; RefusedPushes counts
	// the refused ones in it.
	RefusedBy     string `json:"refused_by,omitempty"`
	RefusedPushes int64  `json:"refused_pushes"`
	// EstimatedBy is [ByRhythm], [ByRecentRate], or empty where nothing is known.
	EstimatedBy string `json:"estimated_by,omitempty"`
	// Silenced is the id of the newest silence in it, or before it was settled; empty for none.
	Silenced string `json:"silenced,omitempty"`
	// Entry is the index of its entry in the trail, 0 before there is one. Reviewed: somebody
	// has annotated that entry, and so has acknowledged the gap.
	Entry    int64 `json:"entry,omitempty"`
	Reviewed bool  `json:"reviewed,omitempty"`
}

// Lost tells the estimate with its bounds, as "about 12 events were lost (8 to 16)".
func (g *Gap) Lost() string {
	about := fmt.Sprintf("about %d events were lost", g.EventsLost)
	if g.EventsLost == 1 {
		about = "about 1 event was lost"
	}
	switch {
	case g.EstimatedBy == "" && g.EventsLost == 1:
		return "at least 1 event was lost; how many is not known, as none had come before:"
	case g.EventsLostLeast == 0:
		return fmt.Sprintf("at most %d events were lost, perhaps none,", g.EventsLostMost)
	}
	return fmt.Sprintf("%s (%d to %d)", about, g.EventsLostLeast, g.EventsLostMost)
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

// is reports whether the gap's cause is a state.
func (g *Gap) is(s State) bool { return g.Cause == string(s) }

// ofArrivals reports whether what arrives shows the gap, and its cause is not known.
func (g *Gap) ofArrivals() bool { return State(g.Cause).ofArrivals() }

// same reports whether both are one gap.
func (g *Gap) same(other Gap) bool { return g.Begun.Equal(other.Begun) && g.Ended.Equal(other.Ended) }

// arrivedAfterAll reports whether the events of the gap probably arrived all the same: the
// provider sends them again after the relay's downtime, and may push in spite of a declared
// DISABLED. A push refused for good is no doubt a loss.
func (g *Gap) arrivedAfterAll() bool {
	return g.Cause == CauseRelayDown || !g.refusedForGood() && 2*g.EventsLate > g.EventsExpected
}

// isSentAgain reports whether the provider sends the events of the gap again.
func (g *Gap) isSentAgain() bool {
	return g.Cause == CauseRelayDown || g.is(Refused) && !g.refusedForGood()
}

// refusedForGood reports whether the sender drops the refused pushes.
func (g *Gap) refusedForGood() bool {
	return g.is(Refused) && !slices.Contains(sentAgain, g.RefusedBy)
}

// estimate sets what was lost, if the number of events expected is right within doubt.
func (g *Gap) estimate(doubt float64) {
	off := int64(math.Ceil(doubt))
	g.EventsLost = max(0, g.EventsExpected-g.EventsLate)
	if g.arrivedAfterAll() && g.EventsLost < off {
		g.EventsLost = 0
	}
	g.EventsLostLeast, g.EventsLostMost = max(0, g.EventsLost-off), g.EventsLost+off
	if g.EventsLost == 0 {
		g.EventsLostMost = 0
	}
	if g.refusedForGood() && g.RefusedPushes > 0 { // a refused push has at least one event
		g.EventsLost, g.EventsLostLeast = max(g.EventsLost, 1), max(g.EventsLostLeast, 1)
		g.EventsLostMost = max(g.EventsLostMost, g.EventsLost)
	}
}

// noise is the usual error of an estimate: by chance, and by the grain of lateness.
func noise(expected int64) float64 { return 2*math.Sqrt(float64(expected)) + .2*float64(expected) }

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

// last keeps the last n elements.
func last[T any](all []T, n int) []T { return all[max(0, len(all)-n):] }
