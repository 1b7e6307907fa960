package relay

import (
	"log/slog"
	"sync"
	"time"
)

// outage knows the deliveries under retry, for one pump, and logs them: when the first
// one fails, when the reason changes, and again at growing intervals while it lasts. The
// product has the same intervals in internal/lasting; see sleep for the reason.
type outage struct {
	sink    string
	log     *slog.Logger
	metrics *Metrics

	mu       sync.Mutex    // guards all below
	failing  int           // deliveries under retry
	since    time.Time     // when the first of them was
	attempts int           // failed ones since
	reason   string        // of the last line
	told     time.Time     // when it was logged
	every    time.Duration // until it is logged again

	refusalsTold time.Time // when refusals were logged last
	untold       int       // events refused since
}

const (
	// quiet separates two log lines about refusals: a sink may refuse everything.
	quiet = time.Minute
	// A lasting outage is logged again after firstReminder, and then after three times as
	// long each, up to lastReminder.
	firstReminder = time.Minute
	lastReminder  = time.Hour
	// calm separates two lines because of changed reasons: a text may differ each time.
	calm = 10 * time.Second
)

// refused notes events now in the dead letters.
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

// retry notes a failed attempt of a delivery; before is its previous error, empty for none.
func (o *outage) retry(before, text string, events int) {
	o.metrics.retry(o.sink)
	o.mu.Lock()
	defer o.mu.Unlock()
	now := time.Now()
	if o.failing == 0 {
		o.since, o.attempts, o.every = now, 0, firstReminder
		o.metrics.failing(o.sink, true)
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

// isDue reports whether a lasting outage is logged again. The caller holds mu.
func (o *outage) isDue(text string, now time.Time) bool {
	if now.Sub(o.told) >= o.every {
		o.every = min(3*o.every, lastReminder)
		return true
	}
	return text != o.reason && now.Sub(o.told) >= calm
}

// recover notes the success of a delivery whose last error was before, or empty.
func (o *outage) recover(before string) {
	if before == "" {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.failing--; o.failing == 0 {
		o.log.Info("delivery works again", "sink", o.sink, "after", time.Since(o.since).Round(time.Millisecond), "attempts", o.attempts)
		o.metrics.failing(o.sink, false)
	}
}
