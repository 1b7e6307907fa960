// Package streaming keeps the environments' event log streaming config as desired, and watches
// how the API shows it. If an environment has no desired config, it only watches.
//
// It looks at each environment again and again: it reads the configs of both destination types
// (operation 13), records what changed since the trail's newest entry, and sets a config
// (operation 14) if it differs from the desired one. Each look decides by what it finds. What
// it remembers of earlier ones only saves requests, so a crash at any line costs a look and
// nothing else.
//
// A PUT has an entry before it and one after it, so that the trail names the relay's action
// that caused a change, wherever a crash comes between. The next look ends a PUT that has no
// end.
//
// A credential rotates in two durable phases: the new one is accepted before the PUT, and
// becomes current after it.
package streaming

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/ingest/credentials"
	"github.com/auditrelay/auditrelay/internal/ingest/received"
	"github.com/auditrelay/auditrelay/internal/retry"
	"github.com/auditrelay/auditrelay/internal/trail/audit"
	"github.com/auditrelay/auditrelay/internal/workspace"
	"github.com/auditrelay/auditrelay/internal/workspace/management"
)

// Options configure a reconciler.
type Options struct {
	// Environments are those of the relay. One without a desired Stream is observed: its config
	// is read and recorded, and never set. With SkipSettings, one without any Stream is left
	// alone.
	Environments []config.Environment
	// Interval between two looks at one environment. Default 60s.
	Interval time.Duration
	// DryRun looks, records and reports, and changes nothing.
	DryRun bool
	// A generated credential of the age RotateEvery is replaced; 0 for never.
	RotateEvery time.Duration

	Client      *management.Client
	Credentials *credentials.Store
	Recorder    audit.Log
	Presence    *workspace.Presence // shared with all who look at the same environments
	Newest      *workspace.Newest   // is told of the looks; may be nil
	// Arrivals knows of refused pushes; if it is nil, nothing is known of them.
	Arrivals *received.Book

	Logger     *slog.Logger          // default: nowhere
	Registerer prometheus.Registerer // nil keeps the metrics unregistered
}

// Reconciler looks after the streaming config of all environments.
type Reconciler struct {
	watchers []*watcher
	byName   map[credentials.Environment]*watcher
}

// watcher looks after one environment.
type watcher struct {
	options Options // with the defaults
	env     config.Environment
	host    string // of this relay; empty: unknown
	log     *slog.Logger
	metrics *metrics

	wake chan struct{} // holds one token: a push was refused
	// The fields below belong to the goroutine of run.
	alarms  alarms
	failing retry.Failure // of the looks
	// trailFailing is for looks that could not use the trail.
	trailFailing retry.Failure

	turn chan struct{} // holds one token while a look, a rotation or an apply is under way
	// Of whoever has the turn:
	types     [2]management.DestinationType // the one whose config counts, and the other
	nowhere   bool                          // by the last look, it streams nowhere
	newest    observation                   // by the last good look
	lastLook  workspace.Agreed              // zero: none in this run
	puts      int                           // since it was last seen as desired
	took      bool                          // the API took the last one
	untold    bool                          // health does not show yet what the first look saw
	putAt     time.Time                     // of the last one
	nextPut   time.Time                     // not before then
	putErr    error                         // the error of the last one
	refusal   *refusal                      // of the last one, by the API; nil: it was not refused
	cause     workspace.Attribution         // of a PUT without a known outcome; zero: none
	putsEnded bool                          // the trail has no PUT without an end
	stood     bool                          // the config was seen as desired, by this process
	contest   contest
	refused   refusedPushes
	schedule  schedule
	failures  workspace.Failures
	checks    workspace.Checks

	mu     sync.Mutex // guards health
	health Health
}

// New returns a reconciler; [Reconciler.Run] starts it.
func New(o Options) *Reconciler {
	m := newMetrics(o.Registerer, o.Environments)
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	o.Interval = cmp.Or(o.Interval, time.Minute)
	host, _ := os.Hostname() // if it is unknown, only age ends another process's PUT
	r := &Reconciler{byName: map[credentials.Environment]*watcher{}}
	gate := newGate(o)
	for _, e := range o.Environments {
		if e.Stream == nil && e.SkipSettings {
			continue
		}
		w := newWatcher(o, e, m)
		w.host, w.schedule.gate = host, gate
		r.watchers = append(r.watchers, w)
		r.byName[w.environment()] = w
	}
	return r
}

func newWatcher(o Options, e config.Environment, m *metrics) *watcher {
	o.Recorder = trailLog{o.Recorder}
	w := &watcher{
		options: o, env: e, metrics: m,
		log:  o.Logger.With("project", e.Project, "environment", e.Environment),
		wake: make(chan struct{}, 1), alarms: alarms{interval: o.Interval}, turn: make(chan struct{}, 1),
		failures: workspace.Failures{
			Trail: o.Recorder, Project: e.Project, Environment: e.Environment, Subject: subjectReads,
			Failed: TypeFailed, Recovered: TypeRecovered,
		},
		types:    [2]management.DestinationType{management.GrafanaLoki, management.Datadog},
		schedule: schedule{every: o.RotateEvery},
	}
	if o.Arrivals != nil {
		w.refused.env = o.Arrivals.Of(w.environment())
	}
	if e.Stream != nil && e.Stream.Datadog != nil {
		w.types[0], w.types[1] = w.types[1], w.types[0]
	}
	w.checks = workspace.Checks{
		Trail: o.Recorder, Project: e.Project, Environment: e.Environment, Subject: subjectChecks, Type: TypeChecked,
		NotShown: []string{"the whole secret of a destination", "who made a change"},
		Newest:   o.Newest,
	}
	w.checks.Watch(Subject, w.options.Interval)
	w.checks.Watch(SubjectSecond, w.options.Interval)
	w.health = Health{Project: e.Project, Environment: e.Environment, Mode: w.mode(), Observed: w.observed()}
	return w
}

// Run looks after all environments, each at its own pace, until ctx ends.
func (r *Reconciler) Run(ctx context.Context) {
	var all sync.WaitGroup
	for _, w := range r.watchers {
		all.Go(func() { w.run(ctx) })
	}
	all.Wait()
}

// observed reports whether the config is watched, and never set.
func (w *watcher) observed() bool { return w.env.Stream == nil || w.env.Stream.Observe }

// mode is the environment's mode by its configuration; a dry run observes all of them.
func (w *watcher) mode() string {
	if w.options.DryRun || w.observed() || w.env.Mode == config.ModeObserve {
		return config.ModeObserve
	}
	return config.ModeEnforce
}

func (w *watcher) run(ctx context.Context) {
	for looking := ctx; ; {
		err := w.inTurn(looking, w.checkedLook)
		if ctx.Err() != nil {
			w.attestLast(ctx)
			return // a look that ctx cut off is no failure
		}
		w.ended(err)
		refused, err := w.rest(ctx, errors.Is(err, management.ErrUnreachable))
		if err != nil {
			w.attestLast(ctx)
			return
		}
		if looking = ctx; refused { // events are being lost
			looking = management.AtOnce(ctx)
		}
	}
}

// checkEvery is the time between two attestations of the looks.
const checkEvery = 24 * time.Hour

// checkedLook is a look to count for the next attestation.
func (w *watcher) checkedLook(ctx context.Context) error {
	began := time.Now()
	err := w.look(ctx)
	if w.putAt.After(began) {
		w.alarms.mended(time.Now())
	}
	w.checks.Round(began, time.Now())
	return errors.Join(err, w.checks.Attest(ctx, checkEvery))
}

// attestLast attests the looks since the last check.
func (w *watcher) attestLast(ctx context.Context) {
	select {
	case w.turn <- struct{}{}:
	default: // a rotation is under way, and may wait for long
		return
	}
	defer func() { <-w.turn }()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	if err := w.checks.Attest(ctx, 0); err != nil {
		w.log.Warn("attesting the looks at the streaming config failed", "error", err)
	}
}

func (w *watcher) inTurn(ctx context.Context, do func(context.Context) error) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case w.turn <- struct{}{}:
	}
	defer func() { <-w.turn }()
	return do(ctx)
}
