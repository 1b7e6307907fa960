package journal

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/auditrelay/auditrelay/internal/retry"
	"github.com/auditrelay/auditrelay/internal/store"
)

const (
	// EventsLog is the log whose losses cost events, and which has the fuse.
	EventsLog = "events"
	// QuarantineLog is the log of the names.
	QuarantineLog = "quarantine"
)

// busyPause is the wait before another attempt where somebody else writes names.
const busyPause = 50 * time.Millisecond

// Quarantine names every position of every log whose record was lost or cannot be
// read, exactly once.
//
// The names stand in a log of their own. Whoever meets a gap calls [Quarantine.Name] before it
// goes on, and [Quarantine.Watch] looks for gaps in places that nobody reads. Positions that
// were named already are left out, so a second sink, a second start or a second relay on
// the same cluster adds nothing. The audit trail follows the quarantine ([Quarantine.Follow])
// and has an entry for each name, journal.quarantined.
//
// Some damage is chance. More than ten damaged events' records, or more than 1 in 100, look
// like a mistake of ours: the fuse blows (fuse.go), and sinks wait before the damage until
// a person accepts it.
//
// It is safe for concurrent use.
type Quarantine struct {
	opts  QuarantineOptions
	store store.Store
	names store.Log
	fuse  *fuse

	quarantined prometheus.Counter
	positions   prometheus.Gauge // that were ever lost

	life      context.Context // ends at Close
	stop      context.CancelFunc
	watchers  sync.WaitGroup
	scrubbing lock // held by the one scrub that reads

	mu      sync.Mutex
	watched map[string]store.Log // guarded by mu

	// turn is held by whoever reads or writes the names, which the fields below describe.
	turn  lock
	id    store.ID          // of the log of names
	read  store.Pos         // the last position of it that named knows
	named map[string]ranges // by the ID of the log
}

// lock is a mutex whose wait ends with a context.
type lock chan struct{}

func (l lock) take(ctx context.Context) error {
	select {
	case l <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (l lock) free() { <-l }

// QuarantineOptions are what a quarantine needs besides its store.
type QuarantineOptions struct {
	Logger     *slog.Logger
	Registerer prometheus.Registerer
	// Lost, if set, is called at each loss of events, from any goroutine. It must not call
	// the quarantine.
	Lost func()
	// Ready is closed once the relay takes pushes, and only then are logs read through. Nil
	// means at once.
	Ready <-chan struct{}
	// Fuse makes sinks wait before much damage. An external cluster has no fuse, since
	// the relay cannot bring back what other servers lost.
	Fuse bool
}

// OpenQuarantine opens the quarantine of a store, or makes it. It watches itself.
func OpenQuarantine(ctx context.Context, s store.Store, o QuarantineOptions) (*Quarantine, error) {
	names, err := s.Log(ctx, QuarantineLog, store.Options{})
	if err != nil {
		return nil, fmt.Errorf("open the quarantine: %w", err)
	}
	life, stop := context.WithCancel(context.WithoutCancel(ctx))
	of := promauto.With(o.Registerer)
	q := &Quarantine{
		opts: o, store: s, names: names, fuse: newFuse(o),
		quarantined: of.NewCounter(prometheus.CounterOpts{
			Name: "auditrelay_journal_quarantined_records_total",
			Help: "Records that could not be read and were set aside.",
		}),
		positions: of.NewGauge(prometheus.GaugeOpts{
			Name: "auditrelay_journal_lost_records",
			Help: "Records that were damaged or lost on disk, over the journal's life; the quarantine names their positions.",
		}),
		life: life, stop: stop, scrubbing: make(lock, 1), watched: map[string]store.Log{}, turn: make(lock, 1),
	}
	if _, err = q.catchUp(ctx); err == nil {
		err = q.Watch(ctx, QuarantineLog, names)
	}
	if err != nil {
		return nil, errors.Join(err, q.Close())
	}
	return q, nil
}

// Close ends all watches.
func (q *Quarantine) Close() error {
	q.stop()
	q.watchers.Wait()
	return nil
}

// Name puts the positions of a gap into the quarantine, except those that are named
// already and those that were trimmed. The log must be watched. The names are durable when
// Name returns.
//
// A crash before the append leaves the gap, which is met again; after it, the next start
// knows the names.
func (q *Quarantine) Name(ctx context.Context, log string, gap store.Gap) error {
	if gap.Why == store.Trimmed {
		return nil
	}
	return q.name(ctx, lossOf(log, gap), nil)
}

// NameRecord names a record that is there, but whose content cannot be decoded. The
// quarantine keeps the bytes, as far as there is room for them.
func (q *Quarantine) NameRecord(ctx context.Context, log string, pos store.Pos, reason string, data []byte) error {
	return q.name(ctx, Loss{Log: log, From: pos, To: pos, Reason: reason}, data)
}

func (q *Quarantine) name(ctx context.Context, loss Loss, data []byte) error {
	if loss.From == 0 || loss.To < loss.From {
		return fmt.Errorf("positions %d to %d of %s are no gap", loss.From, loss.To, loss.Log)
	}
	state, err := q.state(ctx, loss.Log)
	if err != nil {
		return err
	}
	loss.ID = state.ID.String()
	if err := q.turn.take(ctx); err != nil {
		return err
	}
	defer q.turn.free()
	for {
		missing := q.named[loss.ID].missing(loss.From, loss.To)
		if len(missing) == 0 {
			return nil
		}
		drafts, err := q.drafts(ctx, &loss, missing, data)
		if err != nil {
			return err
		}
		// The condition is what names a position once where two relays share a cluster.
		_, err = q.names.AppendAt(ctx, q.read, drafts...)
		if err != nil && !errors.Is(err, store.ErrConflict) {
			return fmt.Errorf("name the lost positions %d to %d of %s: %w", loss.From, loss.To, loss.Log, err)
		}
		news, err := q.catchUp(ctx)
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
func (q *Quarantine) drafts(ctx context.Context, loss *Loss, missing ranges, data []byte) ([]store.Draft, error) {
	state, err := q.names.State(ctx)
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
		if drafts[i], err = one.draft(data, q.names.MaxRecord()); err != nil {
			return nil, err
		}
	}
	return drafts, nil
}

// catchUp reads the names that are new, and tells of each. The turn is held, except
// in Open.
func (q *Quarantine) catchUp(ctx context.Context) (news bool, err error) {
	state, err := q.names.State(ctx)
	if err != nil {
		return false, fmt.Errorf("read the state of the quarantine: %w", err)
	}
	known := state.ID == q.id
	if !known { // the first time, or a cluster lost the end of it
		q.id, q.read, q.named = state.ID, 0, map[string]ranges{}
		q.positions.Set(0)
	}
	for item, err := range q.names.Read(ctx, q.read+1, false) {
		if err != nil {
			return news, fmt.Errorf("read the quarantine: %w", err)
		}
		if item.Gap != nil { // its own watch names it
			q.read, news = item.Gap.To, true
			continue
		}
		q.read, news = item.Record.Pos, true
		if loss, ok := lossIn(item.Record); ok {
			q.remember(ctx, &loss)
			if known {
				q.tell(&loss)
			}
		}
	}
	return news, nil
}

// remember takes a name into account.
func (q *Quarantine) remember(ctx context.Context, loss *Loss) {
	q.named[loss.ID] = q.named[loss.ID].with(loss.From, loss.To)
	q.positions.Add(float64(loss.Positions()))
	if loss.Log != EventsLog || loss.Why == store.Doubtful { // each power cut may tear some
		return
	}
	q.fuse.note(loss.ID, loss.From, loss.To)
	// Before the events are watched, there is nothing to hold. Watch looks at all names.
	if state, err := q.state(ctx, EventsLog); err == nil {
		q.judge(&state)
	}
}

// tell tells of a name that is new.
func (q *Quarantine) tell(loss *Loss) {
	q.quarantined.Inc()
	q.opts.Logger.Error("records cannot be read and were set aside", "log", loss.Log,
		"first_position", loss.From, "last_position", loss.To, "reason", loss.Reason, "kept", loss.Kept)
	if IsEvents(loss.Log) && q.opts.Lost != nil {
		q.opts.Lost()
	}
}

// judge holds the damage against how many records of the events are there and not named. The turn is
// held.
func (q *Quarantine) judge(events *store.State) {
	if !q.opts.Fuse {
		return
	}
	id := events.ID.String()
	all := uint64(events.End + 1 - events.First)
	lost := q.named[id].count(events.First, events.End)
	q.fuse.judge(id, all-min(all, lost))
}

// All returns the content of the quarantine, oldest first.
func (q *Quarantine) All(ctx context.Context) ([]Loss, error) { return Losses(ctx, q.names) }

// Losses reads the losses from a log of them.
func Losses(ctx context.Context, names store.Log) (all []Loss, err error) {
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
func (q *Quarantine) state(ctx context.Context, log string) (store.State, error) {
	q.mu.Lock()
	of := q.watched[log]
	q.mu.Unlock()
	if of == nil {
		return store.State{}, fmt.Errorf("the log %s is not watched by the quarantine", log)
	}
	state, err := of.State(ctx)
	if err != nil {
		return state, fmt.Errorf("read the state of the log %s: %w", log, err)
	}
	return state, nil
}
