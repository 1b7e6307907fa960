package health

import (
	"fmt"
	"time"
)

// A look at a foreign destination of the age staleLook no longer counts.
const staleLook = 10 * time.Minute

// atDestination judges a stream ending elsewhere by the newest event at its destination.
// A silence lasts no longer than the destination was looked at.
func atDestination(e *Evidence, now time.Time) (Verdict, bool) {
	looked := e.Arrivals.Looked
	if looked.IsZero() {
		return Verdict{}, false
	}
	v := Verdict{State: Flowing, Reason: fmt.Sprintf("the newest event at its destination is of %s", clock(e.LastPush))}
	until, known := e.usual()
	switch {
	case now.Sub(looked) > staleLook:
		v.State, v.Reason = Unknown, "its destination last gave its newest event at "+clock(looked)
		v.Action = fmt.Sprintf("see that the relay may query the destination of %s; its log has the error", e.Environment)
	case e.LastPush.IsZero():
		v.State, v.Reason = Unknown, "its destination has no event of the last 24 hours"
		v.Action = elsewhereAction(e)
	case known && looked.After(until):
		v.State, v.Since = Silent, e.LastPush
		v.Reason += fmt.Sprintf("; by this environment's rhythm one was due by %s", clock(until))
		v.Action = elsewhereAction(e)
		fallthrough
	default:
		if e.fresh(now) {
			v.Reason += fmt.Sprintf("; the API declares the stream %s", e.Declared.Status)
		}
	}
	return v, true
}

func elsewhereAction(e *Evidence) string {
	return fmt.Sprintf("log in to %s once, and search the destination: if the event is there, mend the selector or search under stream in the configuration; "+
		"else disable and enable the stream in the dashboard", e.Environment)
}
