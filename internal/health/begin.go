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
	if w.lastPush.IsZero() || !w.here || g.open != nil { // nothing is lost elsewhere
		return
	}
	since := w.lastPush
	if w.seenUntil.After(since) && w.seenUntil.Before(now) {
		since = w.seenUntil
	}
	if n := len(g.ended); n > 0 {
		if g.ended[n-1].Ended.After(since) {
			since = g.ended[n-1].Ended
		}
		if n >= maxGaps { // of a relay that falls again and again, without a push meanwhile
			g.open, g.ended = g.ended[n-1], g.ended[:n-1]
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
	latest := w.lastPush
	for _, r := range w.earlier {
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
	w.lastPush, w.lastNew = w.lastPush.Add(-ahead), w.lastNew.Add(-ahead)
	for _, p := range w.gaps.unsettled() {
		p.Begun = p.Begun.Add(-ahead)
		if !p.Ended.IsZero() {
			p.Ended = p.Ended.Add(-ahead)
		}
		p.span.Set(p.Begun, p.Ended)
	}
	for reason, r := range w.earlier {
		w.earlier[reason] = received.Refusals{Count: r.Count, First: r.First.Add(-ahead), Last: r.Last.Add(-ahead)}
	}
}

// noted takes a push of an earlier process for the last one, if it is.
func (w *watch) noted(received time.Time) {
	if received.After(w.lastNew) && (w.started.IsZero() || !received.After(w.started)) {
		w.lastNew = received
	}
	if !received.After(w.lastPush) || !w.started.IsZero() && received.After(w.started) {
		return
	}
	w.lastPush = received
	if n := len(w.gaps.ended); n > 0 {
		p := w.gaps.ended[n-1]
		if p.Cause == CauseRelayDown && received.After(p.Begun) && received.Before(p.Ended) {
			p.Begun = received
			p.span.Set(p.Begun, p.Ended)
		}
	}
}
