package health

import (
	"fmt"
	"time"

	"github.com/auditrelay/auditrelay/internal/ingest/received"
)

const (
	// An event from aheadFrom in the future is of a wrong clock.
	aheadFrom = 2 * time.Minute
	// A clock that is slow shows by the same age of all new events, within sameAge: what is late
	// for another reason, as by a queue that is worked off, has ages of all sizes.
	sameAge = time.Minute
)

// skew is how far the sender's clock is behind, below 0 how far it is ahead; 0 where it seems
// right. An earlier judgement holds until a younger event contradicts it: those that were held
// up, as by a restart of the relay, are older still.
func (e *Evidence) skew() time.Duration {
	c := &e.Arrivals.Clock
	all := c.Samples == received.ClockSamples
	switch {
	case c.Samples == 0:
		return e.Skew
	case c.Least < -aheadFrom, all && c.Least > lateFrom && c.Most-c.Least <= sameAge:
		return c.Least
	case all && c.Calm-c.Least > lateFrom && c.Most-c.Calm <= sameAge: // of one worker among others
		return c.Calm
	case e.Skew > 0 && c.Least >= e.Skew-sameAge && (!all || c.Least <= e.Skew+sameAge):
		return e.Skew
	}
	return 0
}

// skewed judges an environment whose sender's clock is wrong. Nothing is lost by it.
func skewed(e *Evidence, now time.Time) (Verdict, bool) {
	by := e.skew()
	if by == 0 || now.Sub(e.LastPush) > forgotten {
		return Verdict{}, false
	}
	v := Verdict{State: Skewed, Action: fmt.Sprintf("compare the clocks: `timedatectl` on this machine; if it is right, tell the provider of %s by how much theirs is wrong. "+
		"Until then, search the destinations by the time of arrival", e.Environment)}
	amount := by.Abs().Round(time.Second)
	switch c := &e.Arrivals.Clock; {
	case by < 0:
		v.Reason = fmt.Sprintf("its events are dated up to %s in the future: the sender's clock is ahead, or this machine's is behind", amount)
	case c.Samples > 0 && by-c.Least > lateFrom:
		v.Reason = fmt.Sprintf("some of its events arrive at the same age, %s: the clock of one of the sender's workers is behind by that much, or a queue delays a part of them evenly", amount)
	default:
		v.Reason = fmt.Sprintf("all its events arrive at the same age, %s: the sender's clock is behind by that much, or this machine's is ahead, or a queue delays them evenly", amount)
	}
	return v, true
}
