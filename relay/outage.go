package relay

import (
	"log/slog"
	"sync"
	"time"

	"github.com/auditrelay/auditrelay/internal/retry"
)

// outage knows which deliveries of one pump are being retried, and logs them: when the first
// one fails, when the reason changes, and again at growing intervals while the outage lasts.
type outage struct {
	sink    string
	log     *slog.Logger
	metrics *Metrics

	mu       sync.Mutex // guards all fields below
	failing  int        // the number of deliveries that are being retried
	attempts int        // failed attempts since the first of them was
	lasting  retry.Failure

	refusalsTold time.Time // when refusals were logged last
	untold       int       // events refused since then
}

// quiet is the least time between two log lines about refusals, since a sink may refuse
// everything.
const quiet = time.Minute

// refused counts events that are now in the dead letters, and logs them.
func (o *outage) refused(r []Rejection) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.untold += len(r)
	if !o.refusalsTold.IsZero() && time.Since(o.refusalsTold) < quiet {
		return
	}
	o.log.Warn("sink refused events; they are in the dead letters, and more are counted for a minute before they are logged",
		"sink", o.sink, "events", o.untold, "first_event", r[0].Event.ID, "reason", r[0].Reason)
	o.refusalsTold, o.untold = time.Now(), 0
}

// retry records a failed attempt of a delivery. before is the error of its previous attempt, or
// empty if there was none.
func (o *outage) retry(before, text string, events int) {
	o.metrics.retry(o.sink)
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.failing == 0 {
		o.attempts, o.lasting = 0, retry.Failure{}
		o.metrics.failing(o.sink, o, true)
	}
	if before == "" {
		o.failing++
	}
	o.attempts++
	if !o.lasting.Again(text) {
		return
	}
	message := "delivery still fails; it is tried again until it succeeds"
	if o.attempts == 1 {
		message = "delivery failed; it is tried again until it succeeds"
	}
	fields := append([]any{"sink", o.sink, "events", events, "attempts", o.attempts}, o.lasting.Fields()...)
	o.log.Warn(message, append(fields, "error", text)...)
}

// recover records the success of a delivery whose last error was before, which may be empty.
func (o *outage) recover(before string) {
	if before == "" {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.failing--; o.failing == 0 {
		lasted, _ := o.lasting.Over()
		o.log.Info("delivery works again", append(lasted, "sink", o.sink, "attempts", o.attempts)...)
		o.metrics.failing(o.sink, o, false)
	}
}
