package streaming

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/auditrelay/auditrelay/internal/ingest/credentials"
	"github.com/auditrelay/auditrelay/internal/ingest/received"
)

// refusedPushesReason is the reason of a rotation because of refused pushes.
const refusedPushesReason = "refused_pushes"

const (
	// leastRun and mostRun bound how long pushes are refused, without a good one, before
	// the credential is rotated.
	leastRun = 2 * time.Second
	mostRun  = time.Minute
	// settles is the time for the provider to push with a new credential.
	settles = 10 * time.Second
	// firstTurn is the pause after a rotation because of refused pushes; each further one is
	// four times longer, up to lastTurn. After two lastTurns they begin again at firstTurn.
	firstTurn = time.Minute
	lastTurn  = 24 * time.Hour
)

// refusedPushes judges the refused pushes of an environment whose config is as desired.
//
// If somebody changes a secret by hand to one with the same last four characters, the API does
// not show it, and every push is refused. If a stranger knows the user name, some pushes are
// refused, and good ones come between. The longest run of refusals before a good push tells how
// long to wait for one.
type refusedPushes struct {
	env     *received.Environment // nil: nothing is known of pushes
	run     time.Time             // the run last seen, by its beginning
	longest time.Duration         // of those ended by a good push
	judge   time.Time             // when to look at the present run again; zero for the next look
}

// since returns when the present run of refusals began, and its newest; zero without one.
func (r *refusedPushes) since() (first, last time.Time) {
	if r.env == nil {
		return
	}
	s := r.env.Snapshot()
	c := s.Refusals[received.Credential]
	if c.First.IsZero() || !s.LastPush.Before(c.First) {
		c = received.Refusals{} // a good push came after it
	}
	if !r.run.IsZero() && !r.run.Equal(c.First) {
		r.longest = min(max(r.longest, s.LastPush.Sub(r.run)), mostRun)
	}
	r.run = c.First
	return c.First, c.Last
}

// still reports whether no good push came since the run of refusals began.
func (r *refusedPushes) still(run time.Time) bool {
	first, _ := r.since()
	return !first.IsZero() && first.Equal(run)
}

// proof is how long a run lasts before it counts.
func (r *refusedPushes) proof() time.Duration { return min(max(2*r.longest, leastRun), mostRun) }

// rotateRefused replaces the credential if the API shows the relay's own and every push with
// its user name is refused all the same.
func (w *watcher) rotateRefused(ctx context.Context) error {
	w.refused.judge = time.Time{}
	first, last := w.refused.since()
	if first.IsZero() || w.env.Stream.Relay == nil {
		return nil
	}
	newest, err := w.newestPut(ctx)
	if err != nil {
		return err
	}
	now, settled := time.Now(), newest.settled(time.Now())
	at := latest(latest(first.Add(w.refused.proof()), settled), newest.nextTurn(now))
	if now.Before(at) {
		w.refused.judge = at
		return nil
	}
	if last.Before(settled) {
		return nil // none is refused any more
	}
	w.log.Warn("every push is refused, though the API shows the relay's own credential: its secret may have been changed to one "+
		"with the same last four characters; the relay sets a new one", "since", first, "rotations_before", newest.Turns)
	return w.put(ctx, order{reason: []string{refusedPushesReason}})
}

// settled is when the provider pushes only with the credential of the PUT.
func (p *lastPut) settled(now time.Time) time.Time {
	if p.at.After(now) { // by a clock then ahead
		return time.Time{}
	}
	return p.at.Add(settles)
}

// nextTurn is when the credential may be rotated again because of refused pushes. The trail
// counts these rotations, so a restart forgets none.
func (p *lastPut) nextTurn(now time.Time) time.Time {
	if p.turns(now) == 0 || p.TurnedAt.After(now) { // a clock then ahead stops nothing
		return now
	}
	pause := firstTurn
	for range min(p.Turns-1, 10) {
		pause = min(4*pause, lastTurn)
	}
	return p.TurnedAt.Add(pause)
}

// turns counts the rotations in a row because of refused pushes.
func (p *lastPut) turns(now time.Time) int {
	if now.Sub(p.TurnedAt) > 2*lastTurn {
		return 0
	}
	return p.Turns
}

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
