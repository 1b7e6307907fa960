package relay

import (
	"log/slog"
	"sync"
	"time"
)

// outage has the errors of the deliveries under retry, for one pump. It logs each error
// once: when the first delivery meets it. After all deliveries got past an error, its next
// occurrence is logged again.
type outage struct {
	sink    string
	log     *slog.Logger
	metrics *Metrics

	mu      sync.Mutex
	failing map[string]int // deliveries under retry, by their error; guarded by mu
	since   time.Time      // when the first of them was; guarded by mu

	told   time.Time // when refusals were logged last; guarded by mu
	untold int       // events refused since; guarded by mu
}

// quiet separates two log lines about refusals: a sink may refuse everything.
const quiet = time.Minute

// refused notes events now in the dead letters.
func (o *outage) refused(r []Rejection) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.untold += len(r)
	if !o.told.IsZero() && time.Since(o.told) < quiet {
		return
	}
	o.log.Warn("sink refused events; they are in the dead letters, and more are counted for a minute before they are logged",
		"sink", o.sink, "events", o.untold, "first_event", r[0].Event.ID, "reason", r[0].Reason)
	o.told, o.untold = time.Now(), 0
}

// retry notes a delivery under retry for the error text. Its previous error is before, or
// empty.
func (o *outage) retry(before, text string, events int) {
	o.metrics.retry(o.sink)
	if text == before {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.failing) == 0 {
		o.since = time.Now()
		o.metrics.failing(o.sink, true)
	}
	if o.failing[text]++; o.failing[text] == 1 {
		o.log.Warn("delivery failed; it is tried again until it succeeds", "sink", o.sink, "events", events, "error", text)
	}
	o.leave(before)
}

// recover notes the success of a delivery whose last error was before, or empty.
func (o *outage) recover(before string) {
	if before == "" {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.leave(before)
	if len(o.failing) == 0 {
		o.log.Info("delivery works again", "sink", o.sink, "after", time.Since(o.since).Round(time.Millisecond))
		o.metrics.failing(o.sink, false)
	}
}

// leave counts one delivery less for an error. mu is held.
func (o *outage) leave(text string) {
	if o.failing[text]--; o.failing[text] <= 0 {
		delete(o.failing, text)
	}
}
