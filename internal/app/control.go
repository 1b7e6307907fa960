package app

import (
	"context"
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/auditrelay/auditrelay/internal/control/admin"
	"github.com/auditrelay/auditrelay/internal/workspace"
	"github.com/auditrelay/auditrelay/internal/workspace/management"
	"github.com/auditrelay/auditrelay/internal/workspace/settings"
	"github.com/auditrelay/auditrelay/internal/workspace/streaming"
)

// startControl starts the watchers of the Workspace Management API: the streaming
// config and the settings.
func (r *process) startControl(context.Context) error {
	w := r.cfg.Workspace
	if w == nil {
		return r.startFormers(nil)
	}
	r.reg.MustRegister(
		constant("auditrelay_workspace_requests_per_second_needed", "Requests that all looks at the workspace need, at their intervals.", r.cfg.Round().PerSecond),
		constant("auditrelay_workspace_requests_per_second_limit", "Requests that the configuration allows.", w.RequestsPerSecond),
	)
	client, err := management.New(management.Options{
		BaseURL: w.BaseURL, KeyID: w.KeyID, Secret: w.Secret, Projects: r.cfg.Projects(),
		RequestsPerSecond: w.RequestsPerSecond, Timeout: w.Timeout, Registerer: r.reg,
	})
	if err != nil {
		return fmt.Errorf("workspace: %w", err)
	}
	r.stack.push("workspace's probes", background(client.Probe))
	r.stack.push("workspace's reach", background(func(ctx context.Context) { workspace.FollowReach(ctx, client, r.trail, r.log) }))
	r.admin.AddStatus("workspace", func(context.Context) (any, error) { reach, _ := client.Reach(); return reach, nil })
	r.admin.AddCheck(admin.Check{Name: "workspace", Probe: func(context.Context) (string, error) {
		reach, _ := client.Reach()
		return workspaceRemark(reach), nil
	}})
	presence := workspace.NewPresence(r.trail, r.log)
	r.startStreaming(client, presence)
	r.startSettings(client, presence)
	r.startDesk(client)
	return r.startFormers(client)
}

func (r *process) startStreaming(client *management.Client, presence *workspace.Presence) {
	reconciler := streaming.New(streaming.Options{
		Environments: r.cfg.Environments, Interval: r.cfg.Streaming.Interval, DryRun: r.cfg.Streaming.DryRun,
		RotateEvery: r.cfg.Streaming.RotateEvery, Arrivals: r.arrivals,
		Client: client, Credentials: r.credentials, Recorder: r.trail, Presence: presence, Newest: &r.newest,
		Logger: r.log, Registerer: r.reg,
	})
	r.stack.push("streaming config", background(reconciler.Run))
	// Ingest has been taking pushes for a while; a refused one is told of from now on.
	r.arrivals.OnRefused(reconciler.LookNow)
	r.reconciler.Store(reconciler)
	r.admin.AddStatus("streaming", func(context.Context) (any, error) { return reconciler.Health(), nil })
}

func (r *process) startSettings(client *management.Client, presence *workspace.Presence) {
	if r.cfg.Settings.Disabled {
		return
	}
	var targets []settings.Target
	for _, e := range r.cfg.Environments {
		if !e.SkipSettings {
			targets = append(targets, settings.Target{Project: e.Project, Environment: e.Environment})
		}
	}
	watcher := settings.New(settings.Options{
		Client: client.GivingWay(), Trail: r.trail, Presence: presence, Newest: &r.newest, Targets: targets,
		Interval: r.cfg.Settings.Interval, Intervals: r.cfg.Settings.Intervals, Logger: r.log, Registerer: r.reg,
	})
	r.stack.push("settings", background(watcher.Run))
	r.admin.AddStatus("settings", func(context.Context) (any, error) { return watcher.Status(), nil })
}

// streaming keeps the streaming configs; its error is for people.
func (r *process) streaming() (*streaming.Reconciler, error) {
	reconciler := r.reconciler.Load()
	switch {
	case r.cfg.Workspace == nil:
		return nil, errors.New("the configuration has no workspace section to reach the streaming configs through")
	case reconciler == nil:
		return nil, errors.New("the relay is still starting; try again")
	}
	return reconciler, nil
}

// constant is a gauge whose value the configuration decides.
func constant(name, help string, value float64) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 { return value })
}
