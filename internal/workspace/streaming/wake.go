package streaming

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/auditrelay/auditrelay/internal/ingest/credentials"
)

// LookNow makes the relay look at an environment, because a push with its user name was
// refused. It never blocks. The first refusal leads to a look at once, further ones after
// growing pauses, up to the interval, so that a stranger with the user name cannot make the
// relay flood the API.
func (r *Reconciler) LookNow(env credentials.Environment) {
	w := r.byName[env]
	if w == nil {
		return
	}
	select {
	case w.wake <- struct{}{}:
	default: // a look is due already
	}
}

// firstAlarm is the pause after the first look for a refused push.
const firstAlarm = 30 * time.Second

// alarms spaces out the looks for refused pushes.
type alarms struct {
	interval time.Duration
	next     time.Time // not before then
	pause    time.Duration
}

// due returns when a push that is refused now leads to a look.
func (a *alarms) due(now time.Time) time.Time {
	if a.next.After(now) {
		return a.next
	}
	return now
}

// took records such a look. After two quiet intervals, the pauses start over.
func (a *alarms) took(now time.Time) {
	if now.Sub(a.next) > 2*a.interval {
		a.pause = 0
	}
	a.pause = min(max(2*a.pause, firstAlarm), a.interval)
	a.next = now.Add(a.pause)
}

// mended records a PUT. The next refused push leads to a look at once, as soon as those with
// the replaced credential are over.
func (a *alarms) mended(now time.Time) { a.next, a.pause = now.Add(settles), 0 }

// rest waits for the next look: at its interval, for a refused push, when refused pushes are to
// be judged, or when the API can be used again. It reports whether pushes are refused.
func (w *watcher) rest(ctx context.Context, blind bool) (refused bool, err error) {
	reach, changed := w.options.Client.Reach()
	// A tenth of jitter spreads out many environments by itself.
	scheduled := time.Now().Add(w.options.Interval - rand.N(w.options.Interval/10+1))
	if blind && reach.Cause == "" { // it could be used again before the look had ended
		scheduled = earliest(scheduled, time.Now().Add(time.Second))
	}
	judge, run, alarm, wake := w.refused.judge, w.refused.run, time.Time{}, w.wake
	w.refused.judge = time.Time{} // only once, since the next look may fail
	for {
		at := earliest(scheduled, judge, alarm)
		timer := time.NewTimer(time.Until(at))
		select {
		case <-ctx.Done():
			timer.Stop()
			return false, ctx.Err()
		case <-changed:
			timer.Stop()
			was := reach.Cause
			if reach, changed = w.options.Client.Reach(); was != "" && reach.Cause == "" {
				return false, nil
			}
		case <-wake: // more of them change nothing
			timer.Stop()
			alarm, wake = w.alarms.due(time.Now()), nil
		case <-timer.C:
			if !alarm.IsZero() && at != judge {
				w.alarms.took(at)
			}
			if at != judge || w.refused.still(run) {
				return at != scheduled, nil
			}
			judge = time.Time{} // a good push came
		}
	}
}

// earliest returns the first of the times, ignoring zero ones.
func earliest(first time.Time, more ...time.Time) time.Time {
	for _, t := range more {
		if !t.IsZero() && t.Before(first) {
			first = t
		}
	}
	return first
}
