package app

import (
	"context"
	"fmt"

	"github.com/auditrelay/auditrelay/internal/management"
	"github.com/auditrelay/auditrelay/internal/settings"
	"github.com/auditrelay/auditrelay/internal/streaming"
)

// startControl starts what asks the Workspace Management API: the streaming
// config and the settings.
func (r *process) startControl(context.Context) error {
	w := r.cfg.Workspace
	if w == nil {
		return nil
	}
	client, err := management.New(management.Options{
		BaseURL: w.BaseURL, KeyID: w.KeyID, Secret: w.Secret, RBACPrefix: w.RBACPrefix,
		RequestsPerSecond: w.RequestsPerSecond, Timeout: w.Timeout, Registerer: r.reg,
	})
	if err != nil {
		return fmt.Errorf("workspace: %w", err)
	}
	if err := r.startStreaming(client); err != nil {
		return err
	}
	r.startSettings(client)
	return nil
}

func (r *process) startStreaming(client *management.Client) error {
	reconciler, err := streaming.New(streaming.Options{
		Environments: r.cfg.Environments, Interval: r.cfg.Streaming.Interval, DryRun: r.cfg.Streaming.DryRun,
		Client: client, Credentials: r.credentials, Recorder: r.trail,
		Logger: r.log, Registerer: r.reg,
	})
	if err != nil {
		return err
	}
	r.stack.push("streaming config", background(reconciler.Run))
	r.admin.AddStatus("streaming", func(context.Context) (any, error) { return reconciler.Health(), nil })
	return nil
}

func (r *process) startSettings(client *management.Client) {
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
		Reader: settings.NewReader(client), Trail: r.trail, Targets: targets,
		Interval: r.cfg.Settings.Interval, Logger: r.log, Registerer: r.reg,
	})
	r.stack.push("settings", background(watcher.Run))
	r.admin.AddStatus("settings", func(context.Context) (any, error) { return watcher.Status(), nil })
}
