package health

import (
	"fmt"
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
		received.TooLarge, time.Minute, "they exceed a limit on sizes",
		"raise the limit named in the log under ingest.limits: the provider sends the pushes of %s no second time",
	},
	{
		received.Form, time.Minute, "they are malformed",
		"the log says what is wrong with the pushes of %s; report it",
	},
}

// sentAgain are the reasons a sender answers by trying again.
var sentAgain = []string{received.Unavailable, received.Budget, received.Quota, received.Busy}

// refused judges an environment whose newest pushes were all refused.
func refused(e *Evidence, now time.Time) (Verdict, bool) {
	for _, r := range refusals {
		run, some := e.Runs[r.name]
		if !some || !run.Last.After(e.LastPush) || now.Sub(run.First) < r.after {
			continue
		}
		action := r.action
		if r.name == received.Credential && e.Generated {
			action = rotates
		}
		return Verdict{
			State: Refused, Since: run.First, refusedBy: r.name,
			Reason: fmt.Sprintf("%s; no push was taken since", r.reason),
			Action: fmt.Sprintf(action, e.Environment),
		}, true
	}
	return Verdict{}, false
}
