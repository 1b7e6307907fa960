package app

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/auditrelay/auditrelay/internal/ingest"
	"github.com/auditrelay/auditrelay/internal/journal"
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
	var eager sync.WaitGroup
	eager.Add(len(r.journal.Logs()))
	r.stack.push("recent events", background(r.recent.Run))
	r.stack.push("reading back", background(func(ctx context.Context) {
		if r.readBack(ctx, eager.Done) {
			known.Set(1)
		}
	}))
	eager.Wait()
	return ctx.Err()
}

// readBack fills the set from all logs at once, and calls enough for each as soon as its newest events
// are known. The rest is read a little later. It reports whether it came to the window's beginning.
func (r *process) readBack(ctx context.Context, enough func()) bool {
	b := back{process: r, since: time.Now().Add(-r.cfg().Journal.DuplicateWindow), epoch: r.recent.Epoch(), logs: len(r.journal.Logs())}
	var failed atomic.Bool
	var reading sync.WaitGroup
	for _, log := range r.journal.Logs() {
		reading.Go(func() {
			if err := b.read(ctx, log, sync.OnceFunc(enough)); err != nil {
				failed.Store(true)
			}
		})
	}
	reading.Wait()
	return !failed.Load()
}

// back reads the newest events of the journal back.
type back struct {
	*process
	since time.Time
	epoch uint64
	logs  int
	turn  sync.Mutex // held while an event is noted
}

// read stops when the journal has emptied the set: the events it read may be lost.
func (b *back) read(ctx context.Context, log *journal.Journal, enough func()) error {
	defer enough()
	start, events, bytes := time.Now(), 0, 0
	err := log.ReadBack(ctx, b.since, log.Inherited(), func(record []relay.Event) bool {
		events += len(record)
		for i := range record {
			bytes += len(record[i].Body)
		}
		more := b.note(record)
		if events >= eagerEvents/b.logs || bytes >= eagerBytes/b.logs {
			enough()
			select {
			case <-b.calm:
			case <-ctx.Done():
			}
		}
		return more
	})
	took := time.Since(start).Round(time.Millisecond)
	if err != nil && ctx.Err() == nil {
		b.log.Warn("the newest events of the journal were not all read back; older repeated ones are stored again",
			"events", events, "took", took, "error", err)
	}
	b.log.Debug("the newest events of the journal were read back", "events", events, "took", took)
	return err
}

func (b *back) note(record []relay.Event) (more bool) {
	b.turn.Lock()
	defer b.turn.Unlock()
	b.lastPushes.note(record)
	return b.recent.Restore(record, b.epoch)
}
