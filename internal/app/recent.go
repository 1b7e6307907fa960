package app

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/auditrelay/auditrelay/internal/ingest"
	"github.com/auditrelay/auditrelay/relay"
)

// The newest events are known before ingest listens: at most eagerEvents of them,
// with bodies of eagerBytes. A sender whose answer a crash swallowed pushes those
// again. Older ones are read while ingest works: until then they may be stored twice.
const (
	eagerEvents = 50_000
	eagerBytes  = 4 << 20
)

// makeRecent makes the set of lately stored events, empty: the journal empties it again
// whenever it finds events lost.
func (r *process) makeRecent() (forget func()) {
	window := r.cfg().Journal.DuplicateWindow
	if window <= 0 {
		return func() {}
	}
	r.recent = ingest.NewRecentSet(window, ingest.DefaultRecentEvents)
	return r.recent.Forget
}

// recentEpoch changes whenever the set was emptied.
func (r *process) recentEpoch() uint64 {
	if r.recent == nil {
		return 0
	}
	return r.recent.Epoch()
}

// startRecent fills the set with the events of earlier processes within the window: so a
// repeated push is recognised across a restart. It returns once the newest are known,
// and reads the rest in the background. A repeated event is stored twice if it is not
// known yet; none is dropped.
func (r *process) startRecent(ctx context.Context) error {
	if r.recent == nil {
		return nil
	}
	known := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "auditrelay_ingest_duplicates_known",
		Help: "1 once the relay recognises all events of the duplicate window stored by earlier processes.",
	})
	r.reg.MustRegister(known)
	eager := make(chan struct{})
	enough := sync.OnceFunc(func() { close(eager) })
	r.stack.push("recent events", background(r.recent.Run))
	r.stack.push("reading back", background(func(ctx context.Context) {
		defer enough()
		if r.readBack(ctx, enough) {
			known.Set(1)
		}
	}))
	select {
	case <-eager:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// readBack fills the set, the newest events first, and calls enough once those are
// known. The rest is read a little later. It reports whether it came to the window's beginning.
//
// It stops when the journal has emptied the set: the events it read may be lost.
func (r *process) readBack(ctx context.Context, enough func()) bool {
	start, epoch, events, bytes := time.Now(), r.recent.Epoch(), 0, 0
	since := start.Add(-r.cfg().Journal.DuplicateWindow)
	err := r.journal.ReadBack(ctx, since, r.journal.Inherited(), func(record []relay.Event) bool {
		events += len(record)
		r.lastPushes.note(record)
		for i := range record {
			bytes += len(record[i].Body)
		}
		more := r.recent.Restore(record, epoch)
		if events >= eagerEvents || bytes >= eagerBytes {
			enough()
			select {
			case <-r.calm:
			case <-ctx.Done():
			}
		}
		return more
	})
	took := time.Since(start).Round(time.Millisecond)
	if err != nil && ctx.Err() == nil {
		r.log.Warn("the newest events of the journal were not all read back; older repeated ones are stored again",
			"events", events, "took", took, "error", err)
	}
	r.log.Debug("the newest events of the journal were read back", "events", events, "took", took)
	return err == nil
}
