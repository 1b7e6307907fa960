package health

import (
	"time"

	"github.com/auditrelay/auditrelay/internal/ingest/received"
)

// start begins this run's watch. The time since the relay was last known to run is a gap; it
// has cost nothing where the provider sends its events again. A gap that is still open goes
// on.
func (w *watch) start(now time.Time) {
	w.started = now
	w.setBack(now)
	g := &w.gaps
	if w.LastPush.IsZero() || !w.here || g.Open != nil { // nothing is lost elsewhere
		return
	}
	since := w.LastPush
	if w.seenUntil.After(since) && w.seenUntil.Before(now) {
		since = w.seenUntil
	}
	if n := len(g.Past); n > 0 {
		if g.Past[n-1].Ended.After(since) {
			since = g.Past[n-1].Ended
		}
		if n >= maxGaps { // of a relay that falls again and again, without a push meanwhile
			g.Open, g.Past = g.Past[n-1], g.Past[:n-1]
			w.end(now)
			return
		}
	}
	w.begin(Gap{Cause: CauseRelayDown, Reason: "the relay was down", Begun: since}, now)
	w.end(now)
}

// setBack moves the times of earlier processes into the past, where the clock was set back:
// newer pushes must count.
func (w *watch) setBack(now time.Time) {
	latest := w.LastPush
	for _, r := range w.Earlier {
		if r.Last.After(latest) {
			latest = r.Last
		}
	}
	for _, p := range w.gaps.unsettled() {
		if p.Ended.After(latest) {
			latest = p.Ended
		}
	}
	ahead := latest.Sub(now)
	if ahead <= 0 {
		return
	}
	w.LastPush, w.LastNew = w.LastPush.Add(-ahead), w.LastNew.Add(-ahead)
	for _, p := range w.gaps.unsettled() {
		p.Begun = p.Begun.Add(-ahead)
		if !p.Ended.IsZero() {
			p.Ended = p.Ended.Add(-ahead)
		}
		p.span.Set(p.Begun, p.Ended)
	}
	for reason, r := range w.Earlier {
		w.Earlier[reason] = received.Refusals{Count: r.Count, First: r.First.Add(-ahead), Last: r.Last.Add(-ahead)}
	}
}

// noted takes a push of an earlier process for the last one, if it is.
func (w *watch) noted(received time.Time) {
	if received.After(w.LastNew) && (w.started.IsZero() || !received.After(w.started)) {
		w.LastNew = received
	}
	if !received.After(w.LastPush) || !w.started.IsZero() && received.After(w.started) {
		return
	}
	w.LastPush = received
	if n := len(w.gaps.Past); n > 0 {
		p := w.gaps.Past[n-1]
		if p.Cause == CauseRelayDown && received.After(p.Begun) && received.Before(p.Ended) {
			p.Begun = received
			p.span.Set(p.Begun, p.Ended)
		}
	}
}
