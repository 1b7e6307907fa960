package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/control/console"
	"github.com/auditrelay/auditrelay/internal/health"
	"github.com/auditrelay/auditrelay/internal/ingest/credentials"
	"github.com/auditrelay/auditrelay/internal/workspace/management"
	"github.com/auditrelay/auditrelay/sinks"
)

// errTakesRestart refuses a reload.
var errTakesRestart = errors.New("nothing was applied, since a part of it takes a restart")

// Reload applies the configuration file as it is now: either all of it or, if it is wrong or a
// change takes a restart, nothing. With dryRun it tells what would change.
//
// Whatever may fail comes first. From then on each part changes over by itself.
func (r *process) Reload(ctx context.Context, req console.Reload) (console.Reloaded, error) {
	if r.reload.Load == nil {
		return console.Reloaded{}, errors.New("this relay was started without a configuration file; restart it with another configuration")
	}
	select {
	case <-r.up:
	default:
		return console.Reloaded{}, errors.New("the relay is still starting; try again")
	}
	if err := r.reload.take(ctx); err != nil {
		return console.Reloaded{}, err
	}
	defer r.reload.giveBack()
	if r.reload.Begun != nil && !req.DryRun {
		ended := r.reload.Begun()
		defer func() { ended(r.reload.now.Load().Error) }()
	}
	loaded, err := r.reload.Load(req.File)
	used := contentsOf(loaded.Files)
	if err != nil {
		err = fmt.Errorf("the configuration was not reloaded, and the one before stays: %w", err)
		if !req.DryRun {
			r.reloadFailed(err)
		}
		return console.Reloaded{}, err
	}
	return r.reloadWith(ctx, loaded, used, req.DryRun)
}

// reloadFailed notes why a reload was not applied. The turn is held.
func (r *process) reloadFailed(err error) {
	now := *r.reload.now.Load()
	now.Error, now.Failed = err.Error(), time.Now()
	r.reload.now.Store(&now)
	r.log.Error("the configuration was not reloaded; the relay goes on with the one before", "error", err)
}

// reloadWith compares and applies a configuration. The turn is held.
func (r *process) reloadWith(ctx context.Context, loaded Loaded, used contents, dryRun bool) (console.Reloaded, error) {
	hash, err := hashOf(loaded.Config)
	if err != nil {
		return console.Reloaded{}, err
	}
	report := console.Reloaded{DryRun: dryRun, Changes: r.changes(loaded.Config), Files: append([]string{}, used.since(r.reload.used, loaded.Files)...), ChangingOver: []string{}, ConfigSHA256: hash}
	if dryRun {
		if err := r.try(loaded.Config, nil); err != nil {
			report.Refused = err.Error()
		}
		return report, nil
	}
	if err := r.prepare(ctx, &report, loaded.Config, nil); err != nil {
		r.reloadFailed(err)
		if errors.Is(err, errTakesRestart) { // the report tells of it
			err = nil
		}
		return report, err
	}
	fresh := r.switchTo(ctx, loaded.Config, report.Files)
	r.reload.loaded, r.reload.used, r.reload.sure = loaded, used, false
	r.reload.succeeded(loaded.Config, 1)
	r.reload.files.Store(new(string)) // all of them were read just now
	report.Applied = true
	select {
	case r.reload.done <- struct{}{}:
	default: // one that waits tells of both
	}
	report.ChangingOver = append(report.ChangingOver, untilOpened(ctx, fresh, r.reload.Patience)...)
	r.log.Info("the configuration was reloaded", "changes", len(report.Changes), "fields", fieldsOf(report.Changes), "config_sha256", hash, "changing_over", report.ChangingOver)
	return report, nil
}

// changes are those of a configuration. In a cluster the jobs of a relay are those that it joined
// with.
func (r *process) changes(next *config.Config) []config.Change {
	all := append([]config.Change{}, config.Diff(r.cfg(), next)...)
	for i := range all {
		switch c := &all[i]; {
		case !c.WholeSink():
		case r.inCluster():
			c.Rule, c.Reason = config.Restart, "in a cluster a relay can do the jobs of those sinks that it was started with"
		case c.New == nil:
			c.Reason = "the events that it lacks are kept until 'auditrelay sinks retire' gives them up"
		default:
			c.Reason = "it goes on from its position if the journal knows one under this name; otherwise it begins with the oldest event that is stored"
		}
	}
	return all
}

// prepare does what may fail. A crash in it leaves sinks that the journal keeps events for, until
// the next start opens them or somebody retires them. Of a change of files alone, it is told whose.
func (r *process) prepare(ctx context.Context, report *console.Reloaded, next *config.Config, files []string) error {
	if wrong := report.Restarts(); len(wrong) > 0 {
		return fmt.Errorf("%w: %s", errTakesRestart, fieldsOf(wrong))
	}
	if err := r.try(next, files); err != nil {
		return err
	}
	for _, cfg := range next.Sinks {
		if err := r.journal.Register(ctx, cfg.Name); err != nil {
			return err
		}
	}
	return nil
}

// try makes what is made of a configuration, and closes it again. Of a change of files alone, it is told whose.
func (r *process) try(next *config.Config, files []string) error {
	for _, cfg := range next.Sinks {
		if files != nil && !hasFile(next, cfg.Name, files) {
			continue
		}
		sink, err := sinks.Open(cfg, sinks.Deps{Logger: r.log, Kinds: r.kinds})
		if err == nil {
			err = sink.Close()
		}
		if err != nil {
			return fmt.Errorf("try the configuration's sinks: %w", err)
		}
	}
	if files == nil || slices.ContainsFunc(files, ofControl) {
		if err := r.tryEnvironments(next); err != nil {
			return err
		}
	}
	if files == nil { // a change of files alone tries its own in any case
		if _, err := next.Heartbeat.TLS.ClientConfig(); err != nil {
			return fmt.Errorf("heartbeat.tls: %w", err)
		}
	}
	return nil
}

// tryEnvironments tries what is made of the environments and the workspace.
func (r *process) tryEnvironments(next *config.Config) error {
	if err := credentials.Check(next.Environments); err != nil {
		return fmt.Errorf("try the configuration's credentials: %w", err)
	}
	for i := range next.Environments {
		if _, err := health.DestinationOf(&next.Environments[i]); err != nil {
			return fmt.Errorf("environments[%d].%w", i, err)
		}
	}
	if next.Workspace == nil {
		return nil
	}
	if _, err := management.New(clientOptions(next)); err != nil {
		return fmt.Errorf("workspace: %w", err)
	}
	return nil
}

// reconfigureWithin bounds the wait for what asks the workspace, until it has ended.
const reconfigureWithin = 15 * time.Second

// switchTo changes over to a configuration that was prepared. Nothing in it is expected to fail: if
// something does, the relay ends, and is to start again with the configuration.
// What is made of files is made again where these fields' files have changed.
func (r *process) switchTo(ctx context.Context, next *config.Config, files []string) []*edition {
	before := r.cfg()
	r.apply(next)
	if err := r.credentials.Reconfigure(next.Environments, *next.Streaming.RotationOverlap); err != nil {
		r.fail(fmt.Errorf("change the push credentials: %w", err))
	}
	r.ingest.SetQuotas(quotas(next.Environments))
	r.turnPages(before)
	r.admin.SetToken(next.Admin.Token)
	if r.reload.Level != nil {
		_ = r.reload.Level.UnmarshalText([]byte(next.Log.Level)) // a validated name
	}
	r.journal.Serve(r.sinkNames(), r.sources())
	r.letters.Serve(r.sinkNames())
	for _, name := range r.sinkNames() {
		r.deliveries.Begin(name)
	}
	r.tracer.SetHeaders(next.Traces.Headers)
	if next.Console.OIDC != nil {
		r.visitors.SetClientSecret(next.Console.OIDC.ClientSecret)
	}
	if err := r.certificates.follow(next); err != nil {
		r.log.Warn("the expiry of the new certificates cannot be shown; that of the former ones is", "error", err)
	}
	fresh := r.couriers.replace(next.Sinks, func(name string) bool { return hasFile(next, name, files) })
	if !asksAlike(before, next) || slices.ContainsFunc(files, ofControl) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), reconfigureWithin)
		defer cancel()
		if err := r.control.reconfigure(ctx); err != nil {
			r.fail(fmt.Errorf("start again what asks the workspace: %w", err))
		}
	}
	return fresh
}

// turnPages begins the pages of the environments that are new, and ends those of others.
func (r *process) turnPages(before *config.Config) {
	now := r.applied.Load().environments
	for env := range now {
		r.arrivals.Of(env)
	}
	for _, e := range before.Environments {
		if env := credentials.EnvironmentOf(e); !now[env] {
			r.arrivals.Forget(env)
		}
	}
}

// asksAlike reports whether two configurations agree on all that the control reads of them: on all
// sections except those that change by themselves.
func asksAlike(a, b *config.Config) bool {
	return !slices.ContainsFunc(config.Diff(a, b), func(c config.Change) bool { return ofControl(c.Field) })
}

// ofControl reports whether what asks the workspace reads a field.
func ofControl(field string) bool {
	section := field[:len(field)-len(strings.TrimLeft(field, "abcdefghijklmnopqrstuvwxyz_"))]
	return !slices.Contains([]string{"sinks", "log", "shutdown_timeout", "ingest", "admin", "audit", "journal", "traces", "console"}, section)
}

// untilOpened waits a while for sinks to change over, and names those that have not.
func untilOpened(ctx context.Context, fresh []*edition, patience time.Duration) (late []string) {
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(patience, 10*time.Second))
	defer cancel()
	for _, e := range fresh {
		select {
		case <-e.opened.Done():
		case <-e.over.Done():
		case <-ctx.Done():
			if !e.isOpen() {
				late = append(late, e.cfg.Name)
			}
		}
	}
	return late
}

// fieldsOf names the fields of changes.
func fieldsOf(changes []config.Change) string {
	const most = 20
	var names []string
	for _, c := range changes[:min(most, len(changes))] {
		names = append(names, c.Field)
	}
	if more := len(changes) - len(names); more > 0 {
		names = append(names, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(names, ", ")
}
