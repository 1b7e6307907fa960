package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/control/console"
	"github.com/auditrelay/auditrelay/sinks"
)

// errTakesRestart refuses a reload.
var errTakesRestart = errors.New("nothing was applied, since a part of it takes a restart")

// Reload applies the configuration file as it is now: either all of it or, if it is wrong or a
// change takes a restart, nothing. With dryRun it tells what would change.
//
// Whatever may fail comes first. From then on each part changes over by itself.
func (r *process) Reload(ctx context.Context, dryRun bool) (console.Reloaded, error) {
	if r.reload.Load == nil {
		return console.Reloaded{}, errors.New("this relay was started without a configuration file; restart it with another configuration")
	}
	select {
	case <-r.up:
	default:
		return console.Reloaded{}, errors.New("the relay is still starting; try again")
	}
	r.reload.turn.Lock()
	defer r.reload.turn.Unlock()
	if r.reload.Begun != nil && !dryRun {
		defer r.reload.Begun()()
	}
	loaded, err := r.reload.Load()
	if err != nil {
		err = fmt.Errorf("the configuration was not reloaded, and the one before stays: %w", err)
		if !dryRun {
			r.reloadFailed(err)
		}
		return console.Reloaded{}, err
	}
	return r.reloadWith(ctx, loaded, dryRun)
}

func (r *process) reloadFailed(err error) {
	r.reload.failed(err)
	r.log.Error("the configuration was not reloaded; the relay goes on with the one before", "error", err)
}

// reloadWith compares and applies a configuration. The turn is held.
func (r *process) reloadWith(ctx context.Context, loaded Loaded, dryRun bool) (console.Reloaded, error) {
	hash, err := hashOf(loaded.Config)
	if err != nil {
		return console.Reloaded{}, err
	}
	report := console.Reloaded{DryRun: dryRun, Changes: r.changes(loaded.Config), Files: []string{}, ChangingOver: []string{}, ConfigSHA256: hash}
	if dryRun {
		return report, nil
	}
	if err := r.prepare(ctx, &report, loaded.Config); err != nil {
		r.reloadFailed(err)
		return report, ignore(err, errTakesRestart)
	}
	fresh := r.switchTo(loaded.Config)
	r.reload.loaded = loaded
	r.reload.succeeded(loaded.Config, 1)
	report.Applied = true
	report.ChangingOver = append(report.ChangingOver, untilOpened(ctx, fresh, r.reload.Patience)...)
	r.log.Info("the configuration was reloaded", "changes", len(report.Changes), "fields", fieldsOf(report.Changes), "config_sha256", hash, "changing_over", report.ChangingOver)
	return report, nil
}

// ignore returns nil for one error, which the report tells of.
func ignore(err, known error) error {
	if errors.Is(err, known) {
		return nil
	}
	return err
}

// changes are those of a configuration. In a cluster the jobs of a relay are those that it joined
// with.
func (r *process) changes(next *config.Config) []config.Change {
	all := append([]config.Change{}, config.Diff(r.cfg(), next)...)
	for i, c := range all {
		switch section, _, _ := strings.Cut(c.Field, "."); strings.SplitN(section, "[", 2)[0] {
		case "workspace", "environments", "streaming", "settings", "heartbeat":
			all[i].Rule, all[i].Reason = config.Restart, "what uses it is made at the start"
		}
		if whole := strings.HasPrefix(c.Field, "sinks[") && strings.HasSuffix(c.Field, "]"); whole && r.inCluster() {
			all[i].Rule, all[i].Reason = config.Restart, "in a cluster a relay can do the jobs of those sinks that it was started with"
		}
	}
	return all
}

// prepare does what may fail. A crash in it leaves sinks that the journal keeps events for, until
// the next start opens them or somebody retires them.
func (r *process) prepare(ctx context.Context, report *console.Reloaded, next *config.Config) error {
	if wrong := report.Restarts(); len(wrong) > 0 {
		return fmt.Errorf("%w: %s", errTakesRestart, fieldsOf(wrong))
	}
	for _, cfg := range next.Sinks {
		sink, err := sinks.Open(cfg, sinks.Deps{Logger: r.log, Kinds: r.kinds})
		if err == nil {
			err = sink.Close()
		}
		if err != nil {
			return fmt.Errorf("try the configuration's sinks: %w", err)
		}
	}
	for _, cfg := range next.Sinks {
		if err := r.journal.Register(ctx, cfg.Name); err != nil {
			return err
		}
	}
	return nil
}

// switchTo changes over to a configuration that was prepared.
func (r *process) switchTo(next *config.Config) []*edition {
	r.apply(next)
	if r.reload.Level != nil {
		_ = r.reload.Level.UnmarshalText([]byte(next.Log.Level)) // a validated name
	}
	r.journal.Serve(r.sinkNames(), r.sources())
	r.letters.Serve(r.sinkNames())
	for _, name := range r.sinkNames() {
		r.deliveries.Begin(name)
	}
	return r.couriers.replace(next.Sinks, func(string) bool { return false })
}

// untilOpened waits a while for sinks to change over, and names those that have not.
func untilOpened(ctx context.Context, fresh []*edition, patience time.Duration) (late []string) {
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(patience, 10*time.Second))
	defer cancel()
	for _, e := range fresh {
		select {
		case <-e.opened:
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
