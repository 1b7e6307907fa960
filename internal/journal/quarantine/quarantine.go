// Package quarantine names every position of every log whose record was lost or cannot be
// read, exactly once.
//
// The names stand in a log of their own. Whoever meets a gap calls [Ledger.Name] before it
// goes on, and [Ledger.Watch] looks for gaps in places that nobody reads. Positions that
// were named already are left out, so a second sink, a second start or a second relay on
// the same cluster adds nothing. The audit trail follows the quarantine ([Ledger.Follow])
// and has an entry for each name, journal.quarantined.
//
// Some damage is chance. More than ten damaged events' records, or more than 1 in 100, look
// like a mistake of ours: the fuse blows (fuse.go), and sinks wait before the damage until
// a person accepts it.
package quarantine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/auditrelay/auditrelay/internal/retry"
	"github.com/auditrelay/auditrelay/internal/store"
)

const (
	// Events is the log whose losses cost events, and which has the fuse.
	Events = "events"
	// Name is the log of the names.
	Name = "quarantine"
)

// busyPause is the wait before another attempt where somebody else writes names.
const busyPause = 50 * time.Millisecond

// Ledger is the account of the lost positions. It is safe for concurrent use.
type Ledger struct {
	log     *slog.Logger
	store   store.Store
	names   store.Log
	lost    func()
	metrics metrics
	fuse    *fuse
	ready   <-chan struct{} // Options.Ready

	life      context.Context // ends at Close
	stop      context.CancelFunc
	watchers  sync.WaitGroup
	scrubbing chan struct{} // held by the one scrub that reads

	mu      sync.Mutex
	watched map[string]store.Log // guarded by mu

	// turn is held by whoever reads or writes the names, which the fields below describe.
	turn  chan struct{}
	id    store.ID  // of the log of names
	read  store.Pos // the last position of it that named knows
	named map[account]ranges
	// damaged are those of the events that count for the fuse, by the log's ID.
	damaged map[string]ranges
}

// account has positions that mean the same records.
type account struct{ log, id string }

// Options are what a ledger needs besides its store.
type Options struct {
	Logger     *slog.Logger
	Registerer prometheus.Registerer
	// Lost, if set, is called at each loss of events, from any goroutine. It must not call
	// the ledger.
	Lost func()
	// Ready is closed once the relay takes pushes, and only then are logs read through. Nil
	// means at once.
	Ready <-chan struct{}
	// Fuse makes sinks wait before much damage. An external cluster has no fuse, since
	// the relay cannot bring back what other servers lost.
	Fuse bool
}

type metrics struct {
	quarantined prometheus.Counter
	lost        prometheus.Gauge
}

func newMetrics(reg prometheus.Registerer) metrics {
	m := metrics{
		quarantined: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "auditrelay_journal_quarantined_records_total",
			Help: "Records that could not be read and were set aside.",
		}),
		lost: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "auditrelay_journal_lost_records",
			Help: "Records that were damaged or lost on disk, over the journal's life; the quarantine names their positions.",
		}),
	}
	reg.MustRegister(m.quarantined, m.lost)
	return m
}

// Open opens the quarantine of a store, or makes it. It watches itself.
func Open(ctx context.Context, s store.Store, o Options) (*Ledger, error) {
	names, err := s.Log(ctx, Name, store.Options{})
	if err != nil {
		return nil, fmt.Errorf("open the quarantine: %w", err)
	}
	life, stop := context.WithCancel(context.WithoutCancel(ctx))
	l := &Ledger{
		log: o.Logger, store: s, names: names, lost: o.Lost,
		metrics: newMetrics(o.Registerer), fuse: newFuse(o), ready: o.Ready,
		life: life, stop: stop, scrubbing: make(chan struct{}, 1),
		watched: map[string]store.Log{}, turn: make(chan struct{}, 1), named: map[account]ranges{}, damaged: map[string]ranges{},
	}
	if _, err := l.catchUp(ctx, l.remember); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	if err := l.Watch(ctx, Name, names); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// Close ends all watches.
func (l *Ledger) Close() error {
	l.stop()
	l.watchers.Wait()
	return nil
}

// Name puts the positions of a gap into the quarantine, except those that are named
// already and those that were trimmed. The log must be watched. The names are durable when
// Name returns.
//
// A crash before the append leaves the gap, which is met again; after it, the next start
// knows the names.
func (l *Ledger) Name(ctx context.Context, log string, gap store.Gap) error {
	if gap.Why == store.Trimmed {
		return nil
	}
	return l.name(ctx, lossOf(log, gap), nil)
}

// NameRecord names a record that is there, but whose content cannot be decoded. The
// quarantine keeps the bytes, as far as there is room for them.
func (l *Ledger) NameRecord(ctx context.Context, log string, pos store.Pos, reason string, data []byte) error {
	return l.name(ctx, Loss{Log: log, From: pos, To: pos, Reason: reason}, data)
}

func (l *Ledger) name(ctx context.Context, loss Loss, data []byte) error {
	if loss.From == 0 || loss.To < loss.From {
		return fmt.Errorf("positions %d to %d of %s are no gap", loss.From, loss.To, loss.Log)
	}
	state, err := l.state(ctx, loss.Log)
	if err != nil {
		return err
	}
	loss.ID = state.ID.String()
	if err := l.lock(ctx); err != nil {
		return err
	}
	defer l.unlock()
	for {
		missing := l.named[account{loss.Log, loss.ID}].missing(loss.From, loss.To)
		if len(missing) == 0 {
			return nil
		}
		drafts, err := l.drafts(ctx, &loss, missing, data)
		if err != nil {
			return err
		}
		// The condition is what names a position once where two relays share a cluster.
		_, err = l.names.AppendAt(ctx, l.read, drafts...)
		if err != nil && !errors.Is(err, store.ErrConflict) {
			return fmt.Errorf("name the lost positions %d to %d of %s: %w", loss.From, loss.To, loss.Log, err)
		}
		news, err := l.catchUp(ctx, l.tell)
		if err != nil {
			return err
		}
		if !news {
			if err := retry.Sleep(ctx, busyPause); err != nil {
				return err
			}
		}
	}
}

// drafts are the records that name positions.
func (l *Ledger) drafts(ctx context.Context, loss *Loss, missing ranges, data []byte) ([]store.Draft, error) {
	state, err := l.names.State(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the state of the quarantine: %w", err)
	}
	if state.Bytes+int64(len(data)) > maxKept {
		data = nil
	}
	drafts := make([]store.Draft, len(missing))
	for i, span := range missing {
		one := *loss
		one.From, one.To = span.from, span.to
		if drafts[i], err = one.draft(data, l.names.MaxRecord()); err != nil {
			return nil, err
		}
	}
	return drafts, nil
}

// catchUp reads the names that are new, and calls take with each. The turn is held, except
// in Open.
func (l *Ledger) catchUp(ctx context.Context, take func(context.Context, *Loss)) (news bool, err error) {
	state, err := l.names.State(ctx)
	if err != nil {
		return false, fmt.Errorf("read the state of the quarantine: %w", err)
	}
	if state.ID != l.id { // the first time, or a cluster lost the end of it
		l.id, l.read, l.named, l.damaged = state.ID, 0, map[account]ranges{}, map[string]ranges{}
		take = l.remember
		l.metrics.lost.Set(0)
	}
	for item, err := range l.names.Read(ctx, l.read+1, false) {
		if err != nil {
			return news, fmt.Errorf("read the quarantine: %w", err)
		}
		if item.Gap != nil { // its own watch names it
			l.read, news = item.Gap.To, true
			continue
		}
		l.read, news = item.Record.Pos, true
		if loss, ok := lossIn(item.Record); ok {
			take(ctx, &loss)
		}
	}
	return news, nil
}

// remember takes a name into account.
func (l *Ledger) remember(ctx context.Context, loss *Loss) {
	at := account{loss.Log, loss.ID}
	l.named[at] = l.named[at].with(loss.From, loss.To)
	l.metrics.lost.Add(float64(loss.Positions()))
	if loss.Log != Events || loss.Why == store.Doubtful { // each power cut may tear some
		return
	}
	l.damaged[loss.ID] = l.damaged[loss.ID].with(loss.From, loss.To)
	// Before the events are watched, there is nothing to hold. Watch looks at all names.
	if state, err := l.state(ctx, Events); err == nil && state.ID.String() == loss.ID {
		l.fuse.note(ranges{{loss.From, loss.To}}, l.readable(&state))
	}
}

// tell is remember for a name that is new.
func (l *Ledger) tell(ctx context.Context, loss *Loss) {
	l.remember(ctx, loss)
	l.metrics.quarantined.Inc()
	l.log.Error("records cannot be read and were set aside", "log", loss.Log,
		"first_position", loss.From, "last_position", loss.To, "reason", loss.Reason, "kept", loss.Kept)
	if loss.Log == Events && l.lost != nil {
		l.lost()
	}
}

// readable is how many records of the events are there and not named. The turn is held.
func (l *Ledger) readable(events *store.State) uint64 {
	all := uint64(events.End + 1 - events.First)
	lost := l.named[account{Events, events.ID.String()}].count(events.First, events.End)
	return all - min(all, lost)
}

// All returns the content of the quarantine, oldest first.
func (l *Ledger) All(ctx context.Context) ([]Loss, error) { return All(ctx, l.names) }

// All reads the losses from a log of them.
func All(ctx context.Context, names store.Log) (all []Loss, err error) {
	for item, err := range names.Read(ctx, 1, false) {
		if err != nil {
			return nil, fmt.Errorf("read the quarantine: %w", err)
		}
		if item.Record == nil {
			continue
		}
		if loss, ok := lossIn(item.Record); ok {
			all = append(all, loss)
		}
	}
	return all, nil
}

// state describes a watched log.
func (l *Ledger) state(ctx context.Context, log string) (store.State, error) {
	l.mu.Lock()
	of := l.watched[log]
	l.mu.Unlock()
	if of == nil {
		return store.State{}, fmt.Errorf("the log %s is not watched by the quarantine", log)
	}
	state, err := of.State(ctx)
	if err != nil {
		return state, fmt.Errorf("read the state of the log %s: %w", log, err)
	}
	return state, nil
}

func (l *Ledger) lock(ctx context.Context) error {
	select {
	case l.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (l *Ledger) unlock() { <-l.turn }
