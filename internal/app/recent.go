package app

import (
	"context"
	"time"

	"github.com/auditrelay/auditrelay/internal/recent"
	"github.com/auditrelay/auditrelay/relay"
)

// readBackTimeout bounds how long a start waits for the events that became
// durable last. It is enough for about ten million of them.
const readBackTimeout = 10 * time.Second

// makeRecent makes the set of events that became durable lately, empty: the journal
// empties it again whenever it finds that events are lost.
func (r *process) makeRecent() (forget func()) {
	window := r.cfg.Journal.DuplicateWindow
	if window <= 0 {
		return func() {}
	}
	r.recent = recent.New(window, recent.DefaultEvents)
	return r.recent.Forget
}

// startRecent makes the relay know the events that became durable within the
// window, so that what is pushed again is recognised across a restart: a sender
// whose answer the crash swallowed pushes again to the next process. It ends
// before ingest begins to listen, and takes the newest first: what it does not
// come to could be stored twice, and nothing worse.
func (r *process) startRecent(ctx context.Context) error {
	if r.recent == nil {
		return nil
	}
	window := r.cfg.Journal.DuplicateWindow
	start, events := time.Now(), 0
	reading, cancel := context.WithTimeout(ctx, readBackTimeout)
	defer cancel()
	err := r.journal.ReadBack(reading, start.Add(-window), func(record []relay.Event) bool {
		events += len(record)
		return r.recent.Restore(record)
	})
	switch took := time.Since(start).Round(time.Millisecond); {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		r.log.Warn("the newest events of the journal were not all read back; older ones that are pushed again are stored again",
			"events", events, "took", took, "error", err)
	default:
		r.log.Debug("the newest events of the journal are known", "events", events, "took", took)
	}
	r.stack.push("recent events", background(r.recent.Run))
	return nil
}
