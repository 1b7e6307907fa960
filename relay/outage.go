package relay

import (
	"log/slog"
	"sync"
	"time"
)

// outage knows which deliveries of one pump are being retried, and logs them: when the first
// one fails, when the reason changes, and again at growing intervals while the outage lasts.
// internal/retry uses the same intervals; sleep says why this package does not import it.
type outage struct {
	sink    string
	log     *slog.Logger
	metrics *Metrics

	mu       sync.Mutex    // guards all fields below
	failing  int           // the number of deliveries that are being retried
	since    time.Time     // when the first of them was
	attempts int           // failed attempts since then
	reason   string        // the reason in the last log line
	told     time.Time     // when that was logged
	every    time.Duration // when this has passed it is logged again

	refusalsTold time.Time // when refusals were logged last
	untold       int       // events refused since then
}

const (
	// quiet is the least time between two log lines about refusals, since a sink may refuse
	// everything.
	quiet = time.Minute
	// An outage that lasts is logged again after firstReminder, and then after intervals that
	// grow threefold up to lastReminder.
	firstReminder = time.Minute
	lastReminder  = time.Hour
	// calm is the least time between two log lines because of a changed reason, since the text
	// may differ at each attempt.
	calm = 10 * time.Second
)

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
	now := time.Now()
	if o.failing == 0 {
		o.since, o.attempts, o.every = now, 0, firstReminder
		o.metrics.failing(o.sink, o, true)
	}
	if before == "" {
		o.failing++
	}
	o.attempts++
	switch {
	case o.attempts == 1:
		o.log.Warn("delivery failed; it is tried again until it succeeds", "sink", o.sink, "events", events, "error", text)
	case o.isDue(text, now):
		o.log.Warn("delivery still fails; it is tried again until it succeeds", "sink", o.sink, "events", events,
			"failing_for", now.Sub(o.since).Round(time.Second), "attempts", o.attempts, "error", text)
	default:
		return
	}
	o.told, o.reason = now, text
}

// isDue reports whether an outage that lasts is to be logged again. The caller holds mu.
func (o *outage) isDue(text string, now time.Time) bool {
	if now.Sub(o.told) >= o.every {
		o.every = min(3*o.every, lastReminder)
		return true
	}
	return text != o.reason && now.Sub(o.told) >= calm
}

// recover records the success of a delivery whose last error was before, which may be empty.
func (o *outage) recover(before string) {
	if before == "" {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.failing--; o.failing == 0 {
		o.log.Info("delivery works again", "sink", o.sink, "after", time.Since(o.since).Round(time.Millisecond), "attempts", o.attempts)
		o.metrics.failing(o.sink, o, false)
	}
}
