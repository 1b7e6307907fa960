package workspace

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/retry"
	"github.com/auditrelay/auditrelay/internal/workspace/kinds"
	"github.com/auditrelay/auditrelay/internal/workspace/management"
)

// WatcherOptions configure a watcher.
type WatcherOptions struct {
	Client   *management.Client
	Trail    Trail
	Presence *Presence // shared with all who look at the same environments
	Newest   *Newest   // is told of the looks; may be nil
	// Environments are those whose settings, and whose projects' settings, are watched.
	Environments []config.Environment
	// Interval is the time from one look at a setting to the next. Default 5m.
	Interval time.Duration
	// Intervals replace it, by kind.
	Intervals map[string]time.Duration
	// CheckEvery is the time between two attestations of the looks without a finding,
	// by a "settings.checked" entry for each project and environment. Default 24h.
	CheckEvery time.Duration
	// Logger and Registerer may be nil.
	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

// Watcher watches the workspace's settings: it reads each at its interval, compares it with the
// state in the audit trail, and enters the changes into the trail. Its methods may be called
// concurrently.
//
// The trail is the only state. A look is compared with the After of the resource's newest
// entry. A change is appended right after this entry or not at all. So a change present at a
// look enters once, whatever crashed before, and whoever else is looking. Where the API's
// answer is as it was, to the byte, and nobody has added to the trail, nothing is parsed
// or compared.
//
// States are kept raw, in canonical form (RFC 8785), but compared by meaning: sets, and
// lists keyed by an id, do not change when reordered; an unknown field is compared as it
// stands. See [jsontext.Diff]. The answers' envelopes (request_id, status_code) are no
// part of a state; the request ids stand in the entry's Detail.
//
// A failed read changes nothing: the old state stands, and an entry names the cause once.
// A missing setting, or environment, is an entry only by a believed 404 (see
// [management.Client.Confirm]).
type Watcher struct {
	options WatcherOptions
	groups  []*group
	late    sync.Once // logs a delay of the looks

	mu     sync.Mutex // guards status
	status map[resource]*SettingStatus
}

// group is a project, or one of its environments: the scope of one check. The groups
// are looked at side by side, each in the order of its kinds.
type group struct {
	project, environment string

	round        sync.Mutex // held over a round; guards the fields below
	watches      []*watch
	checks       Checks
	failing      map[string]Failure
	failures     Failures
	proof        *proof        // of this round; nil: none
	end          int64         // of the trail, as this round began; -1: unknown
	readsFailing retry.Failure // as logged
	trailFailing retry.Failure // as logged
}

// watch is one resource, and what this process knows of it besides the trail. All of it
// may be lost: a later look then has a wider window, and nothing else.
type watch struct {
	kind     kinds.Setting
	resource resource
	every    time.Duration
	next     time.Time // of the next look; zero: now
	agreed   agreed    // the last look in agreement with the trail
}

// NewWatcher makes a watcher; nothing is read yet. A project is watched once however
// many of its environments are.
func NewWatcher(o WatcherOptions) *Watcher {
	o.Interval, o.CheckEvery = cmp.Or(o.Interval, 5*time.Minute), cmp.Or(o.CheckEvery, 24*time.Hour)
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	w := &Watcher{options: o, status: map[resource]*SettingStatus{}}
	for i := range o.Environments {
		w.watch(o.Environments[i].Project, "")
		w.watch(o.Environments[i].Project, o.Environments[i].Environment)
	}
	if o.Registerer != nil {
		o.Registerer.MustRegister(w)
	}
	return w
}

// watch watches all settings of a project, where the environment is empty, or of an environment.
func (w *Watcher) watch(project, environment string) {
	same := func(g *group) bool { return g.project == project && g.environment == environment }
	if slices.ContainsFunc(w.groups, same) {
		return
	}
	g := &group{project: project, environment: environment, failing: map[string]Failure{}}
	g.failures = Failures{
		Trail: w.options.Trail, Project: project, Environment: environment, Subject: readsSubject, Failed: typeReadsFailed, Recovered: typeReadsRecovered,
	}
	for _, kind := range kinds.Of(environment == "") {
		r := resource{kind: kind.Name, project: project, environment: environment}
		g.watches = append(g.watches, &watch{kind: kind, resource: r, every: cmp.Or(w.options.Intervals[kind.Name], w.options.Interval)})
		w.status[r] = &SettingStatus{Project: project, Environment: environment, Subject: kind.Name}
	}
	g.checks = w.checksOf(g)
	w.groups = append(w.groups, g)
}

// Run looks at each setting now and at its interval until ctx ends; then it attests the
// looks since the last check. Failures are logged and counted.
func (w *Watcher) Run(ctx context.Context) {
	var all sync.WaitGroup
	for _, g := range w.groups {
		all.Go(func() {
			w.follow(ctx, g)
			w.attestLast(ctx, g)
		})
	}
	all.Wait()
}

func (w *Watcher) follow(ctx context.Context, g *group) {
	for due := time.Now(); ; {
		_ = w.round(ctx, g, due) // each failure was logged, once
		recovered, err := w.options.Client.Sleep(ctx, g.next())
		if err != nil {
			return
		}
		if due = time.Now(); recovered { // nothing was seen for a while: look at all of it
			due = g.last()
		}
	}
}

// next is when the next look is due.
func (g *group) next() time.Time {
	first := slices.MinFunc(g.watches, func(a, b *watch) int { return a.next.Compare(b.next) })
	return first.next
}

// last is when the last of them is due.
func (g *group) last() time.Time {
	last := slices.MaxFunc(g.watches, func(a, b *watch) int { return a.next.Compare(b.next) })
	return last.next
}

// round looks at the settings of a group due by the given time. It ends early where the
// whole environment is gone, or no call can succeed.
func (w *Watcher) round(ctx context.Context, g *group, due time.Time) error {
	g.round.Lock()
	defer g.round.Unlock()
	started := time.Now()
	err := w.lookAtAll(ctx, g, due, started)
	if ctx.Err() != nil {
		return errors.Join(err, ctx.Err())
	}
	g.checks.Round(started, time.Now())
	return errors.Join(err, w.attest(ctx, g, w.options.CheckEvery))
}

func (w *Watcher) lookAtAll(ctx context.Context, g *group, due, started time.Time) error {
	var errs []error
	g.proof, g.end = nil, w.end(ctx)
	for _, x := range g.watches {
		if x.next.After(due) {
			continue
		}
		w.schedule(x, started)
		err := w.look(ctx, g, x)
		if err == nil && g.environment != "" {
			err = inTrail(w.options.Presence.Present(ctx, g.project, g.environment, x.agreed.Requests[0]))
		}
		switch {
		case ctx.Err() != nil:
			return errors.Join(errs...)
		case management.GoneBy(err) != nil:
			// Its settings keep their last states in the trail: nobody changed them, as the API has none.
			g.stopped(w, err)
			gone := inTrail(w.options.Presence.Gone(ctx, g.project, g.environment, management.GoneBy(err)))
			return errors.Join(append(errs, err, w.tellFailures(ctx, g, gone))...)
		case errors.Is(err, management.ErrUnreachable): // the breaker's follower tells of it
			g.stopped(w, err)
			return errors.Join(append(errs, err)...)
		}
		g.failed(x.resource.kind, err)
		errs = append(errs, err)
	}
	err := errors.Join(errs...)
	return errors.Join(err, w.tellFailures(ctx, g, err))
}

// end is the trail's end, -1 where it is unknown: then every look is compared.
func (w *Watcher) end(ctx context.Context) int64 {
	end, err := w.options.Trail.End(ctx)
	if err != nil {
		return -1
	}
	return end
}

// schedule sets the time of x's next look, and says when this one is a whole interval
// late.
func (w *Watcher) schedule(x *watch, started time.Time) {
	if !x.next.IsZero() && started.Sub(x.next) > x.every {
		w.late.Do(func() {
			w.options.Logger.Warn("the settings are read less often than configured: raise workspace.requests_per_second or the settings' intervals",
				append(attrs(x.resource), "interval", x.every, "late", started.Sub(x.next))...)
		})
	}
	x.next = started.Add(x.every)
}
