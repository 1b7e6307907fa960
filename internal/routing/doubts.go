package routing

import (
	"log/slog"
	"sync"
	"time"

	"github.com/auditrelay/auditrelay/relay"
)

// quiet is the least time between two log lines about doubts.
const quiet = 10 * time.Minute

// doubts logs that an expression fails: the first time, and then seldom.
type doubts struct {
	log *slog.Logger

	mu   sync.Mutex
	last time.Time // guarded by mu
}

func (d *doubts) tell(e *relay.Event, err error) {
	d.mu.Lock()
	now := time.Now()
	due := d.last.IsZero() || now.Sub(d.last) >= quiet
	if due {
		d.last = now
	}
	d.mu.Unlock()
	if due {
		d.log.Warn("match.cel failed for an event, and it is delivered; further failures are counted, and not logged for a while",
			"event", e.ID, "type", e.Type, "error", err)
	}
}
