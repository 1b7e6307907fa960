package app

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/auditrelay/auditrelay/internal/ingest"
	"github.com/auditrelay/auditrelay/internal/ingest/credentials"
	"github.com/auditrelay/auditrelay/internal/ingest/received"
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

// Of several relays on a cluster each takes pushes, and each knows what the others took: it reads
// that from the journal, which has every acknowledged event and nothing else. So an environment is
// not called silent as its pushes go to another relay, and a repeated push is recognised wherever
// it comes. Refused pushes are known only where they were refused.

// othersTook notes events that another relay has taken. epoch is that of the recent events from
// before they were read.
func (r *process) othersTook(events []relay.Event, epoch uint64) {
	if r.recent != nil {
		keys := make([]ingest.EventKey, len(events))
		for i := range events {
			keys[i] = r.recent.Key(events[i].Source, []byte(events[i].ID), events[i].Body)
		}
		r.recent.Add(keys, epoch)
	}
	for env, run := range pushedIn(events) {
		if r.applied.Load().environments[env] {
			r.arrivals.Of(env).OtherTook(pushOf(run))
		}
	}
}

// pushedIn gives the runs of pushed events, which are no entries of the trail, with the environment of each.
func pushedIn(events []relay.Event) func(yield func(credentials.Environment, []relay.Event) bool) {
	return func(yield func(credentials.Environment, []relay.Event) bool) {
		for first := 0; first < len(events); {
			e := &events[first]
			next := first + 1
			for next < len(events) && events[next].Source == e.Source {
				next++
			}
			env := credentials.Environment{Project: e.Project, Environment: e.Environment}
			if !e.OfTrail() && !yield(env, events[first:next]) {
				return
			}
			first = next
		}
	}
}

// pushOf is what a book of arrivals is told of events of one environment.
func pushOf(events []relay.Event) received.Push {
	p := received.Push{Events: int64(len(events)), Lateness: &received.Lateness{}}
	for i := range events {
		e := &events[i]
		p.Bytes += int64(len(e.Body))
		p.Newest = max(p.Newest, e.Time.UnixNano())
		p.Lateness.Add(e.Received.Sub(e.Time))
	}
	return p
}

// lastPushes are the last pushes that earlier processes took, as far as they were read back.
type lastPushes struct {
	mu   sync.Mutex
	at   map[credentials.Environment]time.Time    // guarded by mu
	told func(credentials.Environment, time.Time) // nil before somebody wants to know; guarded by mu
}

// note takes the events of a record of the journal.
func (l *lastPushes) note(record []relay.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for env, run := range pushedIn(record) {
		received := run[0].Received
		if received.After(l.at[env]) {
			l.at[env] = received
		}
		if l.told != nil {
			l.told(env, received)
		}
	}
}

// tell has a function told of them, and of those that are still to be read.
func (l *lastPushes) tell(told func(credentials.Environment, time.Time)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.told = told
	for env, at := range l.at {
		told(env, at)
	}
}
