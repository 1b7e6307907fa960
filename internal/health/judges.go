package health

import (
	"fmt"
	"slices"
	"time"

	"github.com/auditrelay/auditrelay/internal/ingest/received"
)

// refusal tells of one reason to refuse pushes.
type refusal struct {
	name string
	// after this long without any good push, the environment is refused. A sender tries
	// again after some refusals; and one bad push among good ones is none.
	after  time.Duration
	reason string
	// action has one %s, for PROJECT/ENVIRONMENT.
	action string
}

// rotates is the action where the credential is the relay's own.
const rotates = "the relay sets a new credential by itself; if this lasts: `auditrelay credentials rotate %s`"

// refusals come with the most telling one first.
var refusals = []refusal{
	{
		received.Credential, 0, "the credential is not valid",
		"set the configured password of %s in the dashboard",
	},
	{
		received.Unavailable, 10 * time.Second, "the journal does not take them",
		"see /readyz and the log for the journal's error; %s is sent again by the provider",
	},
	{
		received.Budget, 10 * time.Second, "the disk budget is spent on events that sinks have not taken",
		"mend the sinks that lag (`auditrelay sinks list`), or raise journal.max_bytes or the quota.undelivered_bytes of %s",
	},
	{
		received.Quota, 10 * time.Second, "its quota is spent",
		"raise the quota of %s in the configuration, or find out what floods it",
	},
	{
		received.Busy, 10 * time.Second, "too many pushes arrive at once",
		"raise ingest.limits.concurrent and in_flight_bytes; %s is sent again by the provider",
	},
	{
		received.Aborted, time.Minute, "their bodies end early, or the sender does not wait for the answer",
		"see that the proxy in front of the push listener lets whole pushes of %s pass, and allows them enough time",
	},
	{
		received.TooLarge, time.Minute, "they exceed a limit on sizes",
		"raise the limit named in the log under ingest.limits: the provider sends the pushes of %s no second time",
	},
	{
		received.Form, time.Minute, "they are malformed",
		"the log says what is wrong with the pushes of %s; report it",
	},
}

// sentAgain are the reasons a sender answers by trying again.
var sentAgain = []string{received.Unavailable, received.Budget, received.Quota, received.Busy, received.Aborted}

// refused judges an environment whose newest pushes were all refused.
func refused(e *Evidence, now time.Time) (Verdict, bool) {
	for _, r := range refusals {
		run, some := e.Runs[r.name]
		if !some || !run.Last.After(e.LastPush) || now.Sub(run.First) < r.after {
			continue
		}
		return Verdict{
			State: Refused, Since: run.First, refusedBy: r.name,
			Reason: fmt.Sprintf("%s; no push was taken since", r.reason),
			Action: r.remedy(e),
		}, true
	}
	return partlyRefused(e)
}

// partlyRefused judges an environment of which some pushes are refused again and again, while others are
// taken. The sender drops those that are refused for good. It sends the others again, and anybody may
// use its name with a wrong password: these are told of only if events are missing, see [reduced].
func partlyRefused(e *Evidence) (Verdict, bool) {
	for _, r := range refusals {
		s, goesOn := e.Series[r.name]
		if !goesOn || r.name == received.Credential || slices.Contains(sentAgain, r.name) {
			continue
		}
		return Verdict{
			State: Refused, Since: s.Since, refusedBy: r.name, came: s.Came,
			Reason: "some of its pushes, again and again: " + r.reason + "; others are taken",
			Action: r.remedy(e),
		}, true
	}
	return Verdict{}, false
}

func (r *refusal) remedy(e *Evidence) string {
	action := r.action
	if r.name == received.Credential && e.Generated {
		action = rotates
	}
	return fmt.Sprintf(action, e.Environment)
}

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

// During a reduction, the silence that is an alarm is patient times as long: pushes at such
// distances are the reduction, not one silence after another.
const patient = 5

// reduced judges pushes that bring far fewer events than usual.
func reduced(e *Evidence, now time.Time) (Verdict, bool) {
	since, came, is := e.Model.Reduced()
	if !is {
		return Verdict{}, false
	}
	if until, known := e.usual(); known {
		last := e.lastChance()
		if now.Sub(last) > patient*until.Sub(last) {
			return Verdict{}, false // it has become a silence
		}
	}
	usual := e.Model.Expected(since, now)
	v := Verdict{
		State: Reduced, Since: since, came: came,
		Reason: fmt.Sprintf("pushes arrive, but with far fewer events than this environment's rhythm: %d since then, where about %.0f are usual", came, usual),
		Action: fmt.Sprintf("see that the proxy or load balancer in front of the push listener lets every push of %s through, and ask the provider; "+
			"if the traffic really is that low, add a silence: the relay learns it in some days", e.Environment),
	}
	for _, r := range refusals {
		if _, goesOn := e.Series[r.name]; goesOn {
			v.Reason, v.Action = v.Reason+"; others are refused: "+r.reason, r.remedy(e)
			break
		}
	}
	return v, true
}

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
