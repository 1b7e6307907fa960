package settings

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/auditrelay/auditrelay/internal/audit"
	"github.com/auditrelay/auditrelay/internal/looks"
	"github.com/auditrelay/auditrelay/internal/management"
	"github.com/auditrelay/auditrelay/internal/pause"
)

// Options configure a watcher.
type Options struct {
	Client   *management.Client
	Trail    audit.Log
	Presence *looks.Presence // shared with all who look at the same environments
	Targets  []Target
	// Interval between the ends and starts of two rounds. Default 5m.
	Interval time.Duration
	// CheckEvery is the time between two attestations of the looks without a finding,
	// by a "settings.checked" entry for each project and environment. Default 24h.
	CheckEvery time.Duration
	// Logger and Registerer may be nil.
	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

// Target is an environment whose settings, and whose project's, are watched.
type Target struct{ Project, Environment string }

// Watcher looks at settings. Its methods may be called concurrently.
type Watcher struct {
	client     *management.Client
	trail      audit.Log
	presence   *looks.Presence
	interval   time.Duration
	checkEvery time.Duration
	log        *slog.Logger
	metrics    *metrics

	round  sync.Mutex // held over a round; guards the groups
	groups []*group

	mu     sync.Mutex // guards status
	status map[Resource]*Status
}

// group is a project, or one of its environments: the scope of one check.
type group struct {
	project, environment string

	watches   []*watch
	tally     tally     // of rounds
	lastCheck time.Time // of the newest check in the trail; zero: not known yet
	failing   bool      // a failed check was logged
}

// watch is one resource, and this process's knowledge of it beside the trail. All of it
// may be lost: a later look then has a wider window, and nothing else.
type watch struct {
	resource Resource
	agreed   agreed // the last look that agreed with the trail
	failing  bool   // a failure was logged
	tally    tally
}

// New makes a watcher; nothing is read yet. A project is watched once however
// many of its environments are.
func New(o Options) *Watcher {
	w := &Watcher{
		client: o.Client, trail: o.Trail, presence: o.Presence,
		interval: cmp.Or(o.Interval, 5*time.Minute), checkEvery: cmp.Or(o.CheckEvery, 24*time.Hour),
		log: cmp.Or(o.Logger, slog.New(slog.DiscardHandler)), metrics: newMetrics(o.Registerer),
		status: map[Resource]*Status{},
	}
	for _, target := range o.Targets {
		w.watch(target.Project, "", projectKinds())
		w.watch(target.Project, target.Environment, environmentKinds())
	}
	return w
}

func (w *Watcher) watch(project, environment string, kinds []Kind) {
	same := func(g *group) bool { return g.project == project && g.environment == environment }
	if slices.ContainsFunc(w.groups, same) {
		return
	}
	g := &group{project: project, environment: environment}
	for _, kind := range kinds {
		r := Resource{Kind: kind, Project: project, Environment: environment}
		g.watches = append(g.watches, &watch{resource: r})
		w.status[r] = &Status{Project: project, Environment: environment, Subject: kind}
	}
	w.groups = append(w.groups, g)
}

// Run takes a snapshot now and at every interval until ctx ends; then it attests the
// looks since the last check. Failures are logged and counted.
func (w *Watcher) Run(ctx context.Context) {
	for {
		_ = w.Snapshot(ctx) // each failure was logged, once
		if pause.For(ctx, w.interval) != nil {
			w.attestLast(ctx)
			return
		}
	}
}

// Snapshot looks at every setting once. Its error joins all failures to read or enter;
// the other settings are done all the same.
func (w *Watcher) Snapshot(ctx context.Context) error {
	w.round.Lock()
	defer w.round.Unlock()
	var errs []error
	for _, g := range w.groups {
		started := time.Now()
		errs = append(errs, w.lookAtGroup(ctx, g)...)
		if ctx.Err() != nil {
			return errors.Join(append(errs, ctx.Err())...)
		}
		g.tally.add(started, time.Now())
		if err := w.attestIfDue(ctx, g); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// lookAtGroup looks at each resource of a group, or only at the first where that shows
// the whole environment to be gone.
func (w *Watcher) lookAtGroup(ctx context.Context, g *group) (errs []error) {
	for _, x := range g.watches {
		err := w.look(ctx, x)
		if ctx.Err() != nil {
			return errs
		}
		if err == nil && g.environment != "" {
			err = w.presence.Present(ctx, g.project, g.environment, x.agreed.requests[0])
		}
		if isGone(err) {
			return append(errs, err, w.gone(ctx, g, err))
		}
		if err != nil {
			errs = append(errs, err)
		}
	}
	return errs
}

// gone notes that the group's environment does not exist. Its settings keep their last
// states in the trail: nobody changed them, as the API has none.
func (w *Watcher) gone(ctx context.Context, g *group, err error) error {
	for _, x := range g.watches {
		w.note(x.resource, func(s *Status) { s.LastFailure, s.Error = time.Now(), err.Error() })
	}
	var a *management.Absence
	errors.As(err, &a)
	return w.presence.Gone(ctx, g.project, g.environment, a)
}

func isGone(err error) bool {
	var a *management.Absence
	return errors.As(err, &a) && a.WholeEnvironment
}
