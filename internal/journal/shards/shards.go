// Package shards spreads the events of a journal on a cluster over several logs, so that more than
// one server leads. To those above it, they are one journal.
//
// All events of an environment are in one log, which its source decides; so their order is that of
// the log. Each log is a [journal.Journal], with a budget, commits and positions of its own. Without
// shards there is one log, and everything is as if this package did not exist.
//
// # Changing the number
//
// Which number counts says the layout, a value in the store's table. It is changed by the relay that
// has control, as soon as all relays are configured with another number. First it says that some
// environments are about to move: pushes of them are refused from then on, with a word to try again.
// Once all relays have said that nothing of these environments is on its way any more, it notes the
// end of each log, and the new number counts. A record names the layout it was appended under, and a
// sink gets it only after everything up to those ends. So the old logs are drained first, at
// each sink, and an environment's events keep their order.
//
// A relay that was cut off, and does not know the layout of the last [StaleAfter], refuses pushes; and
// the one that has control waits as long after a relay was lost. No event depends on that, since all
// logs are read for as long as they have events: only the order of a moved environment's.
package shards

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/journal"
	"github.com/auditrelay/auditrelay/internal/journal/record"
	"github.com/auditrelay/auditrelay/internal/store"
	"github.com/auditrelay/auditrelay/internal/store/lease"
)

// Set is a journal of one log or several. It is safe for concurrent use.
type Set struct {
	logs   []*journal.Journal
	wanted int // by the configuration
	opts   Options
	table  store.Table
	ended  chan struct{} // closed when following has ended; nil without other relays
	stop   context.CancelFunc

	marks atomic.Uint64 // the number that records are marked with
	said  atomic.Uint64 // the newest layout that all appends under way follow
	seen  atomic.Int64  // when the question was put that gave the newest layout, since opened
	start time.Time
	stale time.Duration // see StaleAfter

	mu  sync.Mutex
	now *era // guarded by mu
}

// era is the time of one layout.
type era struct {
	layout
	appends sync.WaitGroup // those that follow it
}

// Options are those of each log, and those of the set.
type Options struct {
	journal.Options
	// Failed is told when this relay has to start again, to know all the logs.
	Failed func(error)
	// Check, where set, returns an error unless the journal is in this store. While it does for longer
	// than [StaleAfter], appends are refused.
	Check func(context.Context) error
}

// errMoving refuses an append until the environment has moved.
var errMoving = fmt.Errorf("%w: the environment is being moved to another shard", journal.ErrUnavailable)

// errStale refuses appends while the table does not answer.
var errStale = fmt.Errorf("%w: the servers do not say which shard the environment belongs to", journal.ErrUnavailable)

// Open opens the logs of events in a store. cfg must have its defaults. The store and the
// quarantine stay the caller's to close.
func Open(ctx context.Context, s store.Store, cfg config.Journal, o Options) (*Set, error) {
	set := &Set{wanted: cfg.Shards, opts: o, table: s.Table(), start: time.Now(), stale: StaleAfter}
	first := &layout{Shards: 1, Logs: 1}
	if o.Shared {
		var err error
		if first, err = firstLayout(ctx, s, cfg); err != nil {
			return nil, err
		}
	}
	set.now = &era{layout: *first}
	set.marks.Store(first.Number)
	set.said.Store(first.Number)
	for shard := range max(first.Logs, cfg.Shards) {
		if err := set.open(ctx, s, cfg, shard); err != nil {
			set.Close()
			return nil, err
		}
	}
	if o.Shared {
		following, stop := context.WithCancel(context.WithoutCancel(ctx))
		set.stop, set.ended = stop, make(chan struct{})
		go func() { defer close(set.ended); set.follow(following) }()
	}
	return set, nil
}

// open opens one log. With several, the metrics of each have its number.
func (s *Set) open(ctx context.Context, in store.Store, cfg config.Journal, shard int) error {
	o := s.opts.Options
	o.Shard = shard
	if s.opts.Shared {
		o.Layout, o.Admit = s.marks.Load, s.admit
	}
	if max(s.now.Logs, cfg.Shards) > 1 {
		o.Registerer = prometheus.WrapRegistererWith(prometheus.Labels{"shard": strconv.Itoa(shard)}, o.Registerer)
	}
	j, err := journal.Open(ctx, in, cfg, o)
	if err != nil {
		return err
	}
	s.logs = append(s.logs, j)
	return nil
}

// firstLayout reads the layout. A cluster that never had an event begins with the configured number;
// a crash after the put leaves it to the next start, which finds it.
func firstLayout(ctx context.Context, s store.Store, cfg config.Journal) (*layout, error) {
	l, err := load(ctx, s.Table())
	if err != nil || l.rev > 0 || cfg.Shards == 1 {
		return l, err
	}
	events, err := journal.Peek(ctx, s, cfg)
	if err != nil || events.End > 0 {
		return l, err
	}
	if err := l.replace(ctx, s.Table(), layout{Shards: cfg.Shards}); err != nil && !errors.Is(err, store.ErrConflict) {
		return nil, err
	}
	return load(ctx, s.Table())
}

// Close closes the logs, as [journal.Journal.Close].
func (s *Set) Close() {
	if s.stop != nil {
		s.stop()
		<-s.ended
	}
	for _, j := range s.logs {
		j.Close()
	}
}

// Logs are all the logs, by their number.
func (s *Set) Logs() []*journal.Journal { return s.logs }

// Append is [journal.Journal.Append] to the log of the batch's source. What a relay stored after it was
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

func (s *Set) logOf(now *era, source string) (*journal.Journal, error) {
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

// Spread is over how many logs events are spread at present, and over how many they are about to
// be, which is 0 while no change is under way.
func (s *Set) Spread() (now, next int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now.Shards, s.now.Next
}

// of is the log of a source at present.
func (s *Set) of(source string) *journal.Journal {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.logs[min(ShardOf(source, s.now.Shards), len(s.logs)-1)]
}

// Reserve is [journal.Journal.Reserve] in the log of a source.
func (s *Set) Reserve(ctx context.Context, source string, bytes, most int64) (giveBack func(), err error) {
	return s.of(source).Reserve(ctx, source, bytes, most)
}

// HoldBeyond is [journal.Journal.HoldBeyond], each source in its log.
func (s *Set) HoldBeyond(letters map[string]int64) {
	by := map[*journal.Journal]map[string]int64{}
	for source, bytes := range letters {
		j := s.of(source)
		if by[j] == nil {
			by[j] = map[string]int64{}
		}
		by[j][source] = bytes
	}
	for _, j := range s.logs {
		j.HoldBeyond(by[j])
	}
}

// MaxEvent is the smallest of the logs': see [journal.Journal.MaxEvent].
func (s *Set) MaxEvent() int {
	most := s.logs[0].MaxEvent()
	for _, j := range s.logs[1:] {
		most = min(most, j.MaxEvent())
	}
	return most
}

// Register is [journal.Journal.Register] with each log.
func (s *Set) Register(ctx context.Context, sink string) error {
	for _, j := range s.logs {
		if err := j.Register(ctx, sink); err != nil {
			return err
		}
	}
	return nil
}

// Serve is [journal.Journal.Serve] with each log.
func (s *Set) Serve(sinks, sources []string) {
	for _, j := range s.logs {
		j.Serve(sinks, sources)
	}
}

// TrimUnder is [journal.Journal.TrimUnder] with each log.
func (s *Set) TrimUnder(turn *lease.Turn) {
	for _, j := range s.logs {
		j.TrimUnder(turn)
	}
}

// Retire is [journal.Journal.Retire] with each log. A crash on the way leaves the sink registered with
// those after it, until it is retired again.
func (s *Set) Retire(ctx context.Context, sink string) error {
	kept := false
	for _, j := range s.logs {
		err := j.Retire(ctx, sink)
		if err != nil && !errors.Is(err, journal.ErrNoPosition) {
			return err
		}
		kept = kept || err == nil
	}
	if !kept {
		return fmt.Errorf("retire sink %s: %w", sink, journal.ErrNoPosition)
	}
	return nil
}

// Only is a set of one log without other relays.
func Only(j *journal.Journal) *Set {
	return &Set{logs: []*journal.Journal{j}, now: &era{layout: layout{Shards: 1, Logs: 1}}}
}

// Undelivered is [journal.Undelivered] of all logs of a store.
func Undelivered(ctx context.Context, s store.Store, cfg config.Journal) (sum uint64, err error) {
	l, err := load(ctx, s.Table())
	if err != nil {
		return 0, err
	}
	for shard := range l.Logs {
		n, err := journal.Undelivered(ctx, s, cfg, shard)
		if err != nil {
			return 0, err
		}
		sum += n
	}
	return sum, nil
}

// InOneLog returns an error unless all undelivered events of a store are in the first log.
func InOneLog(ctx context.Context, s store.Store, cfg config.Journal) error {
	l, err := load(ctx, s.Table())
	if err == nil && l.Shards > 1 {
		err = fmt.Errorf("the events are spread over %d shards: start the relays with journal.shards: 1, and try again once 'auditrelay sinks list' shows nothing pending", l.Shards)
	}
	for shard := 1; err == nil && shard < l.Logs; shard++ {
		var left uint64
		if left, err = journal.Undelivered(ctx, s, cfg, shard); err == nil && left > 0 {
			err = fmt.Errorf("the shard %d still holds %d events that some sink has not had: start the relays again until 'auditrelay sinks list' shows nothing pending", shard, left)
		}
	}
	return err
}
