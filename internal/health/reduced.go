package health

import (
	"fmt"
	"time"
)

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
	return Verdict{
		State: Reduced, Since: since, came: came,
		Reason: fmt.Sprintf("pushes arrive, but with far fewer events than this environment's rhythm: %d since then, where about %.0f are usual", came, usual),
		Action: fmt.Sprintf("see that the proxy or load balancer in front of the push listener lets every push of %s through, and ask the provider; "+
			"if the traffic really is that low, add a silence: the relay learns it in some days", e.Environment),
	}, true
}
