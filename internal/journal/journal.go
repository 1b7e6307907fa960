package journal

import (
	"context"
	"crypto/rand"
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
	"github.com/auditrelay/auditrelay/internal/retry"
	"github.com/auditrelay/auditrelay/internal/store"
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
	// header, its key, what compression adds to bytes that it cannot compress, and what the record
	// of a dead letter says of its event.
	recordRoom = 1 << 10
	// kindEvents is the kind of the journal's records, whose form package record has. Their
	// key is the number of events up to and with the record: see eventsUpTo.
	kindEvents = 1
)

// Journal is one log of events. It is safe for concurrent use.
type Journal struct {
	set    *Set
	events store.Log
	name   string // of the log
	keys   keys   // of its values in the table
	table  store.Table
	lost   *Quarantine
	cfg    config.Journal
	log    *slog.Logger
	// writer marks the records of this process where others append to the log, too; else empty.
	writer string
	sealed atomic.Pointer[func(Sealed)]
	spans  atomic.Pointer[func() uint64] // see KeepAfter

	id        store.ID
	inherited store.Pos     // the newest position committed by an earlier process
	opened    time.Time     // with a reading of the monotonic clock
	trimmed   atomic.Uint64 // the newest trimmed position

	budget   *budget
	end      end
	oldest   firstRecord
	fills    filling
	sweeps   sweeps
	readers  sync.Map // the [*Source] of each sink that this process reads for
	compared sync.Map // the revision of each sink's position that was held against the record there

	refused  atomic.Pointer[refusal] // the last one, until as large an append succeeds
	trimming sync.Mutex              // held by whoever trims
	doubts   retry.Failure           // of the sinks' positions, so that trimming is blocked; guarded by trimming
	commits  *committer
	decoded  *record.Cache
	metrics  *metrics
	life     context.Context // of the loops
	stop     context.CancelFunc
	running  sync.WaitGroup
}

// refusal is why an append failed.
type refusal struct {
	err   error
	at    time.Time
	need  int64 // bytes of the record
	tight bool  // the budget was spent, and not the disk
}

// Options are what a journal needs besides its configuration.
type Options struct {
	Logger     *slog.Logger
	Registerer prometheus.Registerer
	// Quarantine names the positions that were lost. It watches the journal's logs from
	// now on.
	Quarantine *Quarantine
	// Sinks are the configured ones. A record is trimmed after each of them has had it.
	Sinks []string
	// Sources are those of the environments that may push. With one there is nobody to be
	// fair to.
	Sources []string
	// Shared says that other relays append to the logs, too. The journal follows what they append,
	// and trims nothing before [Set.TrimUnder]. The options below are only for this case.
	Shared bool
	// Others is given the events of each record that another relay has appended since
	// this journal was opened, and what Epoch returned before the record was read. It must not keep
	// the events.
	Others func(events []relay.Event, epoch uint64)
	Epoch  func() uint64
	// Failed is told when this relay has to start again, to know all the logs.
	Failed func(error)
	// Check returns an error unless the journal is in this store. While it does for longer
	// than [StaleAfter], appends are refused.
	Check func(context.Context) error
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

// open makes or opens a log of events by its number, and starts to trim it.
func (s *Set) open(ctx context.Context, in store.Store, cfg config.Journal, shard int, metrics prometheus.Registerer) (*Journal, error) {
	opts := &s.opts
	j := &Journal{
		set: s, lost: opts.Quarantine, log: opts.Logger, opened: time.Now(),
		decoded: record.NewCache(len(opts.Sinks)),
		metrics: newMetrics(metrics, opts.Sinks),
		sweeps:  sweeps{wake: make(chan struct{}, 1), next: newSweep()},
	}
	err := j.find(ctx, in, cfg, shard)
	if err == nil {
		err = j.passUnseen(ctx)
	}
	if err != nil {
		return nil, err
	}
	if err := j.lost.Watch(ctx, j.name, j.events); err != nil {
		return nil, fmt.Errorf("watch the log of events: %w", err)
	}
	for _, sink := range opts.Sinks {
		if err := j.register(ctx, sink); err != nil {
			return nil, err
		}
	}
	j.commits = newCommitter(j)
	metrics.MustRegister(&collector{j})
	j.life, j.stop = context.WithCancel(context.Background())
	for _, loop := range []func(context.Context){j.trimLoop, j.sweepLoop, j.inherit} {
		j.running.Go(func() { loop(j.life) })
	}
	if opts.Shared {
		j.writer = rand.Text()[:8]
		j.running.Go(func() { j.follow(j.life) })
	}
	return j, nil
}

// look opens a log of events only to look into it.
func look(ctx context.Context, s store.Store, cfg config.Journal, shard int) (*Journal, error) {
	j := &Journal{set: new(Set)}
	j.set.served.Store(new(served))
	return j, j.find(ctx, s, cfg, shard)
}

// find opens the log with its budget, and notes where it stands, before anything is appended to it.
func (j *Journal) find(ctx context.Context, s store.Store, cfg config.Journal, shard int) (err error) {
	j.name, j.keys, j.table, j.cfg = LogOf(shard), keysOf(shard), s.Table(), cfg
	if j.events, err = s.Log(ctx, j.name, store.Options{MaxBytes: int64(cfg.MaxBytes), Allocate: true}); err != nil {
		return fmt.Errorf("open the log of events %s: %w", j.name, err)
	}
	state, err := j.state(ctx)
	if err != nil {
		return err
	}
	j.id, j.inherited = state.ID, state.End
	j.trimmed.Store(uint64(state.First - 1))
	j.budget = newBudget(int64(cfg.MaxBytes), state.Bytes, len(j.set.served.Load().sources) == 1)
	newest, err := j.newestMark(ctx, &state)
	j.end.reach(newest)
	return err
}

// Seal has a function told of each durable record from now on: of one that this process commits
// before its senders are, of another relay's soon after. The function must not block.
func (j *Journal) Seal(told func(Sealed)) { j.sealed.Store(&told) }

// state describes the log of events.
func (j *Journal) state(ctx context.Context) (store.State, error) {
	state, err := j.events.State(ctx)
	if err != nil {
		return state, fmt.Errorf("read the journal's state: %w", err)
	}
	return state, nil
}

// committed accounts for a durable record.
func (j *Journal) committed(at mark, stored int, shares []sourceBytes) {
	j.end.reach(at)
	if j.budget.add(uint64(at.pos), stored, shares) {
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
	j.running.Wait()
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
