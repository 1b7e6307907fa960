package journal

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/journal/record"
	"github.com/auditrelay/auditrelay/internal/store"
	"github.com/auditrelay/auditrelay/internal/store/lease"
	"github.com/auditrelay/auditrelay/relay"
)

// ErrFull means that the disk budget is spent, or the disk: nothing was kept. Space returns
// when sinks take their events, or when somebody raises the budget.
var ErrFull = errors.New("journal is full")

// ErrUnavailable means that the journal could not confirm a push. It may be on disk all the
// same: to be sure, the sender must push again, and may cause duplicates.
var ErrUnavailable = errors.New("journal is unavailable")

// ErrClosed means that the journal is shutting down.
var ErrClosed = errors.New("journal is closed")

const (
	// recordTarget bounds a record before compression, except for a single large event;
	// the store may take less. Larger records share a sync among more events, and take
	// longer to write.
	recordTarget = 1 << 20
	// recordRoom is what a record needs of [store.Log.MaxRecord] besides its events: its
	// header, its key, and what compression adds to bytes that it cannot compress.
	recordRoom = 256
	// kindEvents is the kind of the journal's records, whose form package record has. Their
	// key is the number of events up to and with the record: see eventsUpTo.
	kindEvents = 1
)

// Journal is safe for concurrent use.
type Journal struct {
	events store.Log
	name   string // of the log
	keys   keys   // of its values in the table
	table  store.Table
	lost   *Quarantine
	cfg    config.Journal
	log    *slog.Logger
	// served are the configured sinks and environments.
	served atomic.Pointer[served]

	// writer marks the records of this process where others append to the log, too; else empty.
	writer string
	others func(events []relay.Event, epoch uint64)
	epoch  func() uint64
	layout func() uint64
	admit  func(ctx context.Context, sink string, layout uint64) error
	sealed atomic.Pointer[func(Sealed)]
	spans  atomic.Pointer[func() uint64] // see KeepAfter
	trims  atomic.Pointer[lease.Turn]    // the right to trim; nil while another relay has it

	id        store.ID
	inherited store.Pos     // the newest position committed by an earlier process
	opened    time.Time     // with a reading of the monotonic clock
	trimmed   atomic.Uint64 // the newest trimmed position

	budget  *budget
	end     end
	oldest  firstRecord
	fills   filling
	sweeps  sweeps
	readers readers
	checks  checks

	refused  atomic.Pointer[refusal] // the last one, until as large an append succeeds
	trimming sync.Mutex              // held by whoever trims
	doubts   bool                    // trimming is blocked, as the log says; guarded by trimming
	commits  *committer
	decoded  *record.Cache
	metrics  *metrics
	stop     context.CancelFunc // ends the loops
	done     chan struct{}      // closed when the loops have ended
}

// refusal is why an append failed.
type refusal struct {
	err   error
	at    time.Time
	need  int64 // bytes of the record
	tight bool  // the budget was spent, and not the disk
}

// Options are what a Journal needs besides its configuration.
type Options struct {
	Logger     *slog.Logger
	Registerer prometheus.Registerer
	// Quarantine names the positions that were lost. It watches the journal's log from
	// now on.
	Quarantine *Quarantine
	// Sinks are the configured ones. A record is trimmed after each of them has had it.
	Sinks []string
	// Sources are those of the environments that may push. With one there is nobody to be
	// fair to.
	Sources []string
	// Shared says that other relays append to the log, too. The journal follows what they append,
	// and trims nothing before [Journal.TrimUnder].
	Shared bool
	// Others, where set, is given the events of each record that another relay has appended since
	// this journal was opened, and what Epoch returned before the record was read. It must not keep
	// the events.
	Others func(events []relay.Event, epoch uint64)
	Epoch  func() uint64
	// Sealed is as in [Journal.Seal].
	Sealed func(Sealed)
	// Shard is the number of the log, of those that the events of a cluster are spread over.
	Shard int
	// Layout, where set, is the number of the present layout of the logs: each record is marked with
	// it. A sink is given a record once Admit has returned nil for the record's layout.
	Layout func() uint64
	Admit  func(ctx context.Context, sink string, layout uint64) error
}

// LogOf is the name of a log of events by its number. The first one is also that of a journal that
// has no others.
func LogOf(shard int) string {
	if shard == 0 {
		return EventsLog
	}
	return EventsLog + "-" + strconv.Itoa(shard)
}

// IsEvents reports whether a log is one of events.
func IsEvents(log string) bool {
	return log == EventsLog || strings.HasPrefix(log, EventsLog+"-")
}

// Open makes or opens the log of events in a store, and starts to trim it. cfg must have its
// defaults. The store and the quarantine stay the caller's to close.
func Open(ctx context.Context, s store.Store, cfg config.Journal, opts Options) (*Journal, error) {
	name := LogOf(opts.Shard)
	events, err := openLog(ctx, s, cfg, name)
	if err != nil {
		return nil, err
	}
	j := &Journal{
		events: events, name: name, keys: keysOf(opts.Shard), layout: opts.Layout, admit: opts.Admit, table: s.Table(), lost: opts.Quarantine, cfg: cfg, log: opts.Logger,
		others: opts.Others, epoch: opts.Epoch, opened: time.Now(),
		decoded: record.NewCache(len(opts.Sinks)),
		metrics: newMetrics(opts.Registerer, opts.Sinks),
		sweeps:  sweeps{wake: make(chan struct{}, 1)},
		readers: readers{by: map[string]*Source{}},
		checks:  checks{revs: map[string]uint64{}},
		done:    make(chan struct{}),
	}
	j.served.Store(&served{opts.Sinks, opts.Sources})
	if err := j.lost.Watch(ctx, name, events); err != nil {
		return nil, fmt.Errorf("watch the log of events: %w", err)
	}
	if err := j.lookAround(ctx); err != nil {
		return nil, err
	}
	for _, sink := range opts.Sinks {
		if err := j.register(ctx, sink); err != nil {
			return nil, err
		}
	}
	j.Seal(opts.Sealed)
	if opts.Shared {
		j.writer = newWriter()
	} else {
		j.TrimUnder(new(lease.Turn))
	}
	j.commits = newCommitter(j)
	opts.Registerer.MustRegister(&collector{j})
	j.startLoops()
	return j, nil
}

// openLog opens a log of events with its budget.
func openLog(ctx context.Context, s store.Store, cfg config.Journal, name string) (store.Log, error) {
	events, err := s.Log(ctx, name, store.Options{MaxBytes: int64(cfg.MaxBytes), Allocate: true})
	if err != nil {
		return nil, fmt.Errorf("open the log of events %s: %w", name, err)
	}
	return events, nil
}

// look opens a log of events only to look into it.
func look(ctx context.Context, s store.Store, cfg config.Journal, shard int) (*Journal, error) {
	events, err := openLog(ctx, s, cfg, LogOf(shard))
	if err != nil {
		return nil, err
	}
	j := &Journal{events: events, keys: keysOf(shard), table: s.Table(), checks: checks{revs: map[string]uint64{}}}
	state, err := j.state(ctx)
	j.id = state.ID
	return j, err
}

// lookAround notes where the log stands, before anything is appended to it.
func (j *Journal) lookAround(ctx context.Context) error {
	state, err := j.state(ctx)
	if err != nil {
		return err
	}
	j.id, j.inherited = state.ID, state.End
	j.trimmed.Store(uint64(state.First - 1))
	j.budget = newBudget(int64(j.cfg.MaxBytes), state.Bytes, len(j.serves().sources) == 1)
	newest, err := j.newestMark(ctx, &state)
	if err != nil {
		return err
	}
	j.end.reach(newest)
	return nil
}

// startLoops starts the trimming, until Close.
func (j *Journal) startLoops() {
	ctx, stop := context.WithCancel(context.Background())
	j.stop = stop
	var running sync.WaitGroup
	loops := []func(context.Context){j.trimLoop, j.sweepLoop, j.inherit}
	if j.writer != "" {
		loops = append(loops, j.follow)
	}
	for _, loop := range loops {
		running.Go(func() { loop(ctx) })
	}
	go func() { running.Wait(); close(j.done) }()
}

// Seal has a function told of each durable record from now on: of one that this process commits
// before its senders are, of another relay's soon after. The function must not block; nil is none.
func (j *Journal) Seal(told func(Sealed)) {
	if told == nil {
		j.sealed.Store(nil)
		return
	}
	j.sealed.Store(&told)
}

// state describes the log of events.
func (j *Journal) state(ctx context.Context) (store.State, error) {
	state, err := j.events.State(ctx)
	if err != nil {
		return state, fmt.Errorf("read the journal's state: %w", err)
	}
	return state, nil
}

// recordHead is about what a log takes for a record in addition to its data, in bytes. Of small
// records it is a large part.
const recordHead = 64

// committed accounts for a durable record.
func (j *Journal) committed(at mark, stored int, shares []sourceBytes) {
	j.end.reach(at)
	if j.budget.add(uint64(at.pos), stored+recordHead, shares) {
		j.sweeps.press()
	}
}

// Append returns nil once the events of b are durable. On an error nothing may be
// acknowledged to the sender, though some of it may be on disk: ErrFull, ErrUnavailable,
// record.ErrTooLarge, ErrClosed or ctx's. b must not be changed before Append returns, and
// is not referred to after.
//
// Concurrent calls share commits: see committer.
func (j *Journal) Append(ctx context.Context, b *record.Batch) error {
	if b.Len() == 0 {
		return nil
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	need, err := j.commits.append(b)
	switch last := j.refused.Load(); {
	case errors.Is(err, ErrFull), errors.Is(err, ErrUnavailable):
		j.refused.Store(&refusal{err: err, at: time.Now(), need: need, tight: j.budget.tight(need)})
	case err == nil && last != nil && int64(b.Size()) >= last.need:
		j.refused.Store(nil)
	}
	return err
}

// MaxEvent is the present limit of an event with its attributes and labels, in bytes. A
// larger one is record.ErrTooLarge.
func (j *Journal) MaxEvent() int { return j.events.MaxRecord() - recordRoom }

// Close stops trimming, and returns when all appends under way have ended.
// Later ones get ErrClosed.
func (j *Journal) Close() {
	j.commits.close()
	j.stop()
	<-j.done
}

// Inherited is the newest position committed by an earlier process.
func (j *Journal) Inherited() uint64 { return uint64(j.inherited) }

// Trimmed is the newest position trimmed on purpose.
func (j *Journal) Trimmed() uint64 { return j.trimmed.Load() }

// Ends are the positions of the oldest and the newest record.
func (j *Journal) Ends(ctx context.Context) (first, last uint64, err error) {
	state, err := j.state(ctx)
	return uint64(state.First), uint64(state.End), err
}

// Usage is how much of the disk budget is spent.
type Usage struct {
	// Bytes and MaxBytes are of the log of events. Undelivered is the part of Bytes still
	// owed to some sink, about.
	Bytes       int64 `json:"bytes"`
	MaxBytes    int64 `json:"budget_bytes"`
	Undelivered int64 `json:"undelivered_bytes"`

	Records uint64 `json:"records"`
	// Oldest and Newest are when these records were committed; zero without any.
	Oldest time.Time `json:"oldest,omitzero"`
	Newest time.Time `json:"newest,omitzero"`
	// ReplaySeconds is how long ago the oldest record was committed: how far back
	// a replay can reach.
	ReplaySeconds float64 `json:"replay_seconds"`
	// SecondsToFull is the time until undelivered events fill the budget, at the rate of the
	// last minutes; nil while they do not grow, and in the first two minutes.
	SecondsToFull *float64 `json:"seconds_to_full,omitempty"`
}

// Usage describes the journal as it is now.
func (j *Journal) Usage(ctx context.Context) (Usage, error) {
	state, err := j.state(ctx)
	if err != nil {
		return Usage{}, err
	}
	u := Usage{
		Bytes: state.Bytes, MaxBytes: int64(j.cfg.MaxBytes), Undelivered: j.budget.undelivered(),
		Records: uint64(state.End + 1 - state.First),
	}
	if u.Records > 0 {
		if u.Oldest, err = j.oldest.time(ctx, j.events, state.First); err != nil {
			return Usage{}, err
		}
		u.Newest = j.end.get().at
	}
	if !u.Oldest.IsZero() {
		u.ReplaySeconds = max(0, time.Since(u.Oldest).Seconds())
	}
	if left := j.fills.secondsToFull(u.MaxBytes); !math.IsNaN(left) && !math.IsInf(left, 1) {
		u.SecondsToFull = &left
	}
	return u, nil
}

// firstRecord remembers when the oldest record was committed, until it is trimmed.
type firstRecord struct {
	mu    sync.Mutex
	first store.Pos // guarded by mu
	at    time.Time // guarded by mu
}

func (f *firstRecord) time(ctx context.Context, events store.Log, first store.Pos) (time.Time, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.first == first && !f.at.IsZero() {
		return f.at, nil
	}
	r, err := recordFrom(ctx, events, first, math.MaxUint64)
	if err != nil || r == nil {
		return time.Time{}, err
	}
	f.first, f.at = first, r.Time
	return f.at, nil
}
