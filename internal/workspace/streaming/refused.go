package streaming

import (
	"context"
	"time"

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
