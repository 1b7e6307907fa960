package journal

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/journal/record"
	"github.com/auditrelay/auditrelay/internal/store"
	"github.com/auditrelay/auditrelay/internal/store/lease"
)

// Set is a journal of one log or several: the comment of the package says why. It is safe for
// concurrent use.
type Set struct {
	logs      []*Journal
	wanted    int // by the configuration
	opts      Options
	table     store.Table
	served    atomic.Pointer[served]
	trims     atomic.Pointer[lease.Turn] // the right to trim; nil while another relay has it
	following sync.WaitGroup             // of the layout, where there are other relays
	stop      context.CancelFunc

	marks atomic.Uint64 // the number that records are marked with
	said  atomic.Uint64 // the newest layout that all appends under way follow
	seen  atomic.Int64  // when the question was put that gave the newest layout, since opened
	start time.Time
	stale time.Duration // see StaleAfter

	mu  sync.Mutex
	now *era // guarded by mu
}

// served are the configured sinks and environments, which a reload of the configuration changes.
type served struct {
	sinks []string
	// sources are the environments', without a bound on others.
	sources []string
}

// era is the time of one layout.
type era struct {
	layout
	appends sync.WaitGroup // those that follow it
}

// errMoving refuses an append until the environment has moved.
var errMoving = fmt.Errorf("%w: the environment is being moved to another shard", ErrUnavailable)

// errStale refuses appends while the table does not answer.
var errStale = fmt.Errorf("%w: the servers do not say which shard the environment belongs to", ErrUnavailable)

// Open makes or opens the logs of events in a store, and starts to trim them. cfg must have its
// defaults. The store and the quarantine stay the caller's to close.
func Open(ctx context.Context, s store.Store, cfg config.Journal, o Options) (*Set, error) {
	first := &layout{Shards: 1, Logs: 1}
	if o.Shared {
		var err error
		if first, err = firstLayout(ctx, s, cfg); err != nil {
			return nil, err
		}
	}
	following, stop := context.WithCancel(context.WithoutCancel(ctx))
	set := &Set{wanted: cfg.Shards, opts: o, table: s.Table(), start: time.Now(), stale: StaleAfter, stop: stop, now: &era{layout: *first}}
	set.served.Store(&served{o.Sinks, o.Sources})
	if !o.Shared {
		set.TrimUnder(new(lease.Turn))
	}
	set.marks.Store(first.Number)
	set.said.Store(first.Number)
	logs := max(first.Logs, cfg.Shards)
	for shard := range logs {
		metrics := o.Registerer
		if logs > 1 { // those of each log have its number
			metrics = prometheus.WrapRegistererWith(prometheus.Labels{"shard": strconv.Itoa(shard)}, metrics)
		}
		j, err := set.open(ctx, s, cfg, shard, metrics)
		if err != nil {
			set.Close()
			return nil, err
		}
		set.logs = append(set.logs, j)
	}
	if o.Shared {
		set.following.Go(func() { set.follow(following) })
	}
	return set, nil
}

// firstLayout reads the layout. A cluster that never had an event begins with the configured number;
// a crash after the put leaves it to the next start, which finds it. Where a later layout may have been
// lost, the logs that there are say how many have events.
func firstLayout(ctx context.Context, s store.Store, cfg config.Journal) (*layout, error) {
	l, err := loadLayout(ctx, s.Table())
	if err == nil && l.doubtful {
		var logs []string
		logs, err = s.Logs(ctx)
		for slices.Contains(logs, LogOf(l.Logs)) {
			l.Logs++
		}
	}
	if err != nil || l.rev > 0 || cfg.Shards <= 1 {
		return l, err
	}
	j, err := look(ctx, s, cfg, 0)
	if err != nil || j.inherited > 0 {
		return l, err
	}
	if err := l.replace(ctx, s.Table(), layout{Shards: cfg.Shards}); err != nil && !errors.Is(err, store.ErrConflict) {
		return nil, err
	}
	return loadLayout(ctx, s.Table())
}

// Close closes the logs, as [Journal.Close].
func (s *Set) Close() {
	s.stop()
	s.following.Wait()
	for _, j := range s.logs {
		j.Close()
	}
}

// Logs are all the logs, by their number.
func (s *Set) Logs() []*Journal { return s.logs }

// Append is [Journal.Append] to the log of the batch's source. What a relay stored after it was
// frozen may stand where nobody reads any more, so that it is not acknowledged.
func (s *Set) Append(ctx context.Context, b *record.Batch) error {
	now := s.enter()
	defer now.appends.Done()
	j, err := s.logOf(now, b.Source())
	if err != nil {
		return err
	}
	if err := j.Append(ctx, b); err != nil || !s.opts.Shared || !s.isStale() {
		return err
	}
	return errStale
}

// enter begins an append under the present layout.
func (s *Set) enter() *era {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now.appends.Add(1)
	return s.now
}

func (s *Set) logOf(now *era, source string) (*Journal, error) {
	switch {
	case !s.opts.Shared:
		return s.logs[0], nil
	case s.isStale():
		return nil, errStale
	case now.moves(source):
		return nil, errMoving
	}
	shard := ShardOf(source, now.Shards)
	if shard >= len(s.logs) {
		return nil, errStale // the relay ends
	}
	return s.logs[shard], nil
}

// layoutNow is the present layout.
func (s *Set) layoutNow() *layout {
	s.mu.Lock()
	defer s.mu.Unlock()
	return &s.now.layout
}

// Spread is over how many logs events are spread at present, and over how many they are about to
// be, which is 0 while no change is under way.
func (s *Set) Spread() (now, next int) {
	l := s.layoutNow()
	return l.Shards, l.Next
}

// of is the log of a source at present.
func (s *Set) of(source string) *Journal {
	now, _ := s.Spread()
	return s.logs[min(ShardOf(source, now), len(s.logs)-1)]
}

// Reserve is [Journal.Reserve] in the log of a source.
func (s *Set) Reserve(ctx context.Context, source string, bytes, most int64) (giveBack func(), err error) {
	return s.of(source).Reserve(ctx, source, bytes, most)
}

// HoldBeyond counts dead letters beyond their budget as undelivered bytes of their sources, in place
// of those of the last call.
func (s *Set) HoldBeyond(letters map[string]int64) {
	by := map[*Journal]map[string]int64{}
	for source, bytes := range letters {
		j := s.of(source)
		if by[j] == nil {
			by[j] = map[string]int64{}
		}
		by[j][source] = bytes
	}
	for _, j := range s.logs {
		j.budget.holdBeyond(by[j])
	}
}

// MaxEvent is the smallest of the logs': see [Journal.MaxEvent].
func (s *Set) MaxEvent() int {
	most := math.MaxInt
	for _, j := range s.logs {
		most = min(most, j.MaxEvent())
	}
	return most
}

// Register makes each log keep from now on what a sink does not have. [Set.Serve] and
// [Journal.SourceUnder] do it too, but tell of no error before others are changed.
func (s *Set) Register(ctx context.Context, sink string) error {
	for _, j := range s.logs {
		if err := j.register(ctx, sink); err != nil {
			return err
		}
	}
	return nil
}

// Serve replaces the sinks and the sources that the journal was opened with. A sink that is gone
// keeps its position, and what it does not have is kept for it until it is retired, as after a
// start without it.
func (s *Set) Serve(sinks, sources []string) {
	s.served.Store(&served{sinks, sources})
	for _, j := range s.logs {
		j.decoded.Serve(len(sinks))
		j.budget.serve(len(sources) == 1)
		j.metrics.showOverlap(sinks)
	}
}

// TrimUnder gives this relay the right to trim. Before that, the journal of a cluster only looks
// what could be trimmed.
func (s *Set) TrimUnder(turn *lease.Turn) { s.trims.Store(turn) }

// Retire is [Journal.Retire] with each log. A crash on the way leaves the sink registered with
// those after it, until it is retired again.
func (s *Set) Retire(ctx context.Context, sink string) error {
	kept := false
	for _, j := range s.logs {
		err := j.Retire(ctx, sink)
		if err != nil && !errors.Is(err, ErrNoPosition) {
			return err
		}
		kept = kept || err == nil
	}
	if !kept {
		return fmt.Errorf("retire sink %s: %w", sink, ErrNoPosition)
	}
	return nil
}
