package health

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/ingest/credentials"
	"github.com/auditrelay/auditrelay/internal/ingest/received"
	"github.com/auditrelay/auditrelay/internal/retry"
	"github.com/auditrelay/auditrelay/internal/trail/audit"
	"github.com/auditrelay/auditrelay/internal/workspace/streaming"
)

// Options configure a keeper.
type Options struct {
	Environments []config.Environment
	// Anonymous is the environment of pushes without a credential; zero: none.
	Anonymous credentials.Environment
	// Book has the arrivals.
	Book *received.Book
	// Declared returns the API's word; nil: no API is looked at.
	Declared func() []streaming.Health
	// Interval is the time between two looks at the API. Default 60s.
	Interval time.Duration
	// Trail takes the transitions and gaps; nil: none.
	Trail audit.Log
	// Reviewed reports whether somebody annotated the entry at an index of the trail, without
	// waiting; nil: nobody has.
	Reviewed func(index int64) bool
	// Silences mark transitions and gaps; nil: there are none.
	Silences *Silences
	// File keeps the rhythms and the gaps. Empty: nothing is kept.
	File string
	// Every is the time between two judgements. Default 1s.
	Every time.Duration
	// Settle is how long late events are waited for, from the first good push after a
	// gap. Default 1m.
	Settle time.Duration

	Logger     *slog.Logger          // default: nowhere
	Registerer prometheus.Registerer // nil keeps the metrics unregistered
}

// Keeper judges the environments. Its methods may be called concurrently.
type Keeper struct {
	options Options
	log     *slog.Logger
	writer  writer

	mu      sync.Mutex                         // guards the watches; held for moments only
	watches []*watch                           // in the order of the configuration
	byName  map[credentials.Environment]*watch // guarded by mu
	absent  map[string]*keptOfWatch            // of the file, and not in the configuration
}

// New makes a keeper with the file of earlier processes. An unreadable file is no error: the
// rhythms are learnt again.
func New(o Options) (*Keeper, error) {
	o.Every, o.Settle = cmp.Or(o.Every, time.Second), cmp.Or(o.Settle, time.Minute)
	o.Interval = cmp.Or(o.Interval, time.Minute)
	k := &Keeper{options: o, log: cmp.Or(o.Logger, slog.New(slog.DiscardHandler)), byName: map[credentials.Environment]*watch{}, absent: map[string]*keptOfWatch{}}
	k.writer = writer{keeper: k, wake: make(chan struct{}, 1)}
	for i := range o.Environments {
		w := k.newWatch(credentials.EnvironmentOf(o.Environments[i]))
		k.configure(w, &o.Environments[i])
		k.watches, k.byName[w.Environment] = append(k.watches, w), w
	}
	k.load()
	if o.Registerer == nil {
		return k, nil
	}
	if err := o.Registerer.Register(collector{k}); err != nil {
		return nil, fmt.Errorf("register the health metrics: %w", err)
	}
	return k, nil
}

// Noted tells of an earlier process's arrival, found in the journal.
func (k *Keeper) Noted(env credentials.Environment, received time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if w := k.byName[env]; w != nil {
		w.noted(received)
	}
}

// Run judges the environments until ctx ends; then it saves the file.
func (k *Keeper) Run(ctx context.Context) {
	var all sync.WaitGroup
	all.Go(func() { k.writer.run(ctx) })
	ticker := time.NewTicker(k.options.Every)
	defer ticker.Stop()
	k.begin(time.Now())
	for before := time.Now(); ; {
		now := time.Now()
		if by := jump(before, now); by.Abs() > leastJump {
			k.jumped(by, now)
		}
		before = now
		k.tick(now)
		select {
		case <-ticker.C:
		case <-ctx.Done():
			all.Wait()
			return
		}
	}
}

// leastJump is the least jump of the clock of any interest.
const leastJump = 5 * time.Second

// jump is how far the machine's clock was set ahead between two times; below 0: back.
func jump(before, now time.Time) time.Duration {
	return now.Round(0).Sub(before.Round(0)) - now.Sub(before)
}

// jumped tells of a jump of the clock. It is no silence, and teaches nothing.
func (k *Keeper) jumped(by time.Duration, now time.Time) {
	k.log.Warn("the machine's clock jumped: it was set, or the machine stood still; if it stood still, events of this time may be missing",
		"ahead", by.Round(time.Second).String())
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, w := range k.watches {
		w.setBack(now)
		w.Kept, w.lesson = now, lesson{}
	}
}

// begin notes when this run began to watch.
func (k *Keeper) begin(now time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, w := range k.watches {
		w.start(now)
	}
}

// tick judges every environment once.
func (k *Keeper) tick(now time.Time) {
	declared := k.declared()
	k.mu.Lock()
	defer k.mu.Unlock()
	urgent := false
	for _, w := range k.watches {
		w.review(k.options.Reviewed)
		w.step(declared[w.Environment], now)
		for _, p := range w.unsettled() {
			p.Silenced = cmp.Or(k.silenced(w), p.Silenced)
		}
		urgent = urgent || w.changed || w.held.due || len(w.Due) > 0
	}
	if urgent {
		k.writer.nudge()
	}
}

func (k *Keeper) declared() map[credentials.Environment]streaming.Health {
	k.mu.Lock()
	declared := k.options.Declared
	k.mu.Unlock()
	if declared == nil {
		return nil
	}
	all := map[credentials.Environment]streaming.Health{}
	for _, h := range declared() {
		all[credentials.Environment{Project: h.Project, Environment: h.Environment}] = h
	}
	return all
}

// writer enters transitions and gaps, and saves the file: apart from judging, as a trail or
// a disk may take its time.
type writer struct {
	keeper      *Keeper
	wake        chan struct{} // of one place
	saved       time.Time     // zero after an attempt that failed
	trail, file retry.Failure
}

func (w *writer) nudge() {
	select {
	case w.wake <- struct{}{}:
	default: // it is awake
	}
}

const (
	// saveEvery is the time between two savings of the file without a gap's change.
	saveEvery = time.Minute
	// writeAgain is the pause after a failure, and writePause between any two attempts.
	writeAgain = 10 * time.Second
	writePause = time.Second
	// enterEvery is the time between two looks at the trail, for a migration, where nothing is due.
	enterEvery = 10 * time.Second
)

func (w *writer) run(ctx context.Context) {
	for ctx.Err() == nil {
		rest := writePause
		if err := errors.Join(w.told(&w.trail, w.keeper.enter(ctx)), w.told(&w.file, w.save(false))); err != nil {
			rest = writeAgain
		}
		_ = retry.Sleep(ctx, rest) // the end of ctx ends the loop too
		select {
		case <-ctx.Done():
		case <-w.wake:
		case <-time.After(enterEvery):
		}
	}
	// A kill before this line loses at most a minute's lesson.
	_ = w.told(&w.file, w.save(true))
}

// told logs a lasting failure, and its end.
func (w *writer) told(f *retry.Failure, err error) error {
	f.Tell(w.keeper.log, err, "the health of the environments cannot be kept; /status has it all the same, and it is tried again", "the health of the environments is kept again")
	return err
}

// newWatch makes the watch of an environment, which is to be configured.
func (k *Keeper) newWatch(name credentials.Environment) *watch {
	return &watch{
		page: k.options.Book.Of(name), settle: k.options.Settle, refused: map[string]*hour{},
		Evidence: Evidence{Environment: name, Model: &Rhythm{}},
	}
}

// configure gives a watch its configuration. mu is held, or nobody else has the keeper yet.
func (k *Keeper) configure(w *watch, e *config.Environment) {
	w.env, w.Asked = *e, e.Stream.Asked()
	w.Here = e.Stream != nil && e.Stream.Relay != nil || len(e.Credentials) > 0 || w.Environment == k.options.Anonymous
	w.Declared.Interval = k.options.Interval
	w.Declared.Watched = k.options.Declared != nil && (e.Stream != nil || !e.SkipSettings) // as internal/workspace/streaming does
}

// Reconfigure replaces Options.Environments, Options.Interval and Options.Declared. What is known of
// an environment stays known, also of one that is gone, in case it comes back.
func (k *Keeper) Reconfigure(environments []config.Environment, interval time.Duration, declared func() []streaming.Health) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.options.Environments, k.options.Interval, k.options.Declared = environments, interval, declared
	now, before := time.Now(), k.byName
	k.watches, k.byName = nil, map[credentials.Environment]*watch{}
	for i := range environments {
		name := credentials.EnvironmentOf(environments[i])
		w := before[name]
		if w == nil {
			w = k.comes(name, now)
		}
		k.configure(w, &environments[i])
		k.watches, k.byName[name] = append(k.watches, w), w
		w.changed = true
	}
	for name, w := range before {
		if k.byName[name] == nil {
			k.goes(w, now)
		}
	}
}

// comes makes the watch of an environment that was not in the configuration, or not lately.
func (k *Keeper) comes(name credentials.Environment, now time.Time) *watch {
	w := k.newWatch(name)
	k.recall(w, now)
	w.start(now)
	return w
}

// goes keeps what is known of an environment that is no longer in the configuration.
func (k *Keeper) goes(w *watch, now time.Time) {
	if kept, err := w.keep(); err == nil && len(k.absent) < maxAbsent {
		kept.Absent = now
		k.absent[w.Environment.String()] = kept
	}
}

// all are the watches at this moment.
func (k *Keeper) all() []*watch {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Clone(k.watches)
}
