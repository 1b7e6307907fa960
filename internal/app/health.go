package app

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/auditrelay/auditrelay/internal/control/admin"
	"github.com/auditrelay/auditrelay/internal/health"
	"github.com/auditrelay/auditrelay/internal/ingest/credentials"
	"github.com/auditrelay/auditrelay/internal/workspace/streaming"
	"github.com/auditrelay/auditrelay/relay"
)

// startHealth judges the environments from before the first push until after the last.
func (r *process) startHealth(context.Context) (err error) {
	options := health.Options{
		Environments: r.cfg.Environments, Anonymous: anonymous(r.cfg.Ingest), Book: r.arrivals,
		Interval: r.cfg.Streaming.Interval, Trail: r.trail, Reviewed: r.timeline.Reviewed, Silences: r.silences, File: filepath.Join(r.cfg.DataDir, health.FileName),
		Logger: r.log, Registerer: r.reg,
	}
	if r.cfg.Workspace != nil {
		options.Declared = r.declared
	}
	if r.health, err = health.New(options); err != nil {
		return err
	}
	r.stack.push("environments' health", background(r.health.Run))
	r.admin.AddCheck(admin.Check{Name: "environments", Probe: r.environmentsRemark})
	if err := r.startForeign(); err != nil {
		return err
	}
	r.admin.AddStatus("environments", func(context.Context) (any, error) { return r.health.Status(), nil })
	return nil
}

// startForeign looks for the events of streams ending elsewhere.
func (r *process) startForeign() error {
	var targets []health.Target
	for i := range r.cfg.Environments {
		e := &r.cfg.Environments[i]
		source, err := health.DestinationOf(e)
		if err != nil {
			return fmt.Errorf("environments[%d].%w", i, err)
		}
		if source != nil {
			page := r.arrivals.Of(credentials.Environment{Project: e.Project, Environment: e.Environment})
			targets = append(targets, health.Target{Page: page, Destination: source})
		}
	}
	r.stack.push("foreign destinations", background(func(ctx context.Context) { health.WatchDestinations(ctx, targets, r.log) }))
	return nil
}

// startSilences only makes them; the health's writer reads them from the trail.
func (r *process) startSilences(context.Context) error {
	var names []credentials.Environment
	for _, e := range r.cfg.Environments {
		names = append(names, credentials.Environment{Project: e.Project, Environment: e.Environment})
	}
	r.silences = health.NewSilences(r.trail, names)
	return nil
}

// declared is the state shown by the API; nothing until the relay looks at it.
func (r *process) declared() []streaming.Health {
	if reconciler := r.reconciler.Load(); reconciler != nil {
		return reconciler.Health()
	}
	return nil
}

// noteArrivals tells of the last push of each environment in a record of the journal.
func (r *process) noteArrivals(record []relay.Event) {
	var env credentials.Environment
	for i := range record {
		e := &record[i]
		of := credentials.Environment{Project: e.Project, Environment: e.Environment}
		if of != env && strings.HasPrefix(e.Type, "event_log.") { // not an entry of the trail
			env = of
			r.health.Noted(env, e.Received)
		}
	}
}
