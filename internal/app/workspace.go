package app

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/control/admin"
	"github.com/auditrelay/auditrelay/internal/ingest/credentials"
	"github.com/auditrelay/auditrelay/internal/retry"
	"github.com/auditrelay/auditrelay/internal/workspace"
	"github.com/auditrelay/auditrelay/internal/workspace/management"
	"github.com/auditrelay/auditrelay/internal/workspace/streaming"
)

// startWorkspace starts the watchers of the Workspace Management API: the streaming
// config and the settings.
func (c *control) startWorkspace(context.Context) error {
	w, shown := c.cfg().Workspace, c.show(&c.acting)
	if w == nil {
		return c.startFormers(nil, shown)
	}
	needed := c.cfg().Round().PerSecond
	shown.MustRegister(
		gauge("auditrelay_workspace_requests_per_second_needed", "Requests that all looks at the workspace need, at their intervals.", func() float64 { return needed }),
		gauge("auditrelay_workspace_requests_per_second_limit", "Requests that the configuration allows.", func() float64 { return w.RequestsPerSecond }),
	)
	options := clientOptions(c.cfg())
	options.Registerer, options.Permit = shown, c.turn.Await
	client, err := management.New(options)
	if err != nil {
		return fmt.Errorf("workspace: %w", err)
	}
	c.runActing("workspace's probes", client.Probe)
	c.runActing("workspace's reach", func(ctx context.Context) { workspace.FollowReach(ctx, client, c.trail, c.log) })
	shown.addStatus("workspace", func(context.Context) (any, error) { reach, _ := client.Reach(); return reach, nil })
	shown.addCheck(admin.Check{Name: "workspace", Probe: func(context.Context) (string, error) {
		reach, _ := client.Reach()
		return workspaceRemark(reach), nil
	}})
	presence := workspace.NewPresence(c.trail, c.log)
	c.startStreaming(client, presence, shown)
	if err := c.startSettings(client, presence, shown); err != nil {
		return err
	}
	c.startDesk(client)
	return c.startFormers(client, shown)
}

func clientOptions(cfg *config.Config) management.Options {
	w := cfg.Workspace
	return management.Options{
		BaseURL: w.BaseURL, KeyID: w.KeyID, Secret: w.Secret, Projects: cfg.Projects(),
		RequestsPerSecond: w.RequestsPerSecond, Timeout: w.Timeout,
	}
}

func (c *control) startStreaming(client *management.Client, presence *workspace.Presence, shown *shown) {
	reconciler := streaming.New(streaming.Options{
		Environments: c.cfg().Environments, Interval: c.cfg().Streaming.Interval, DryRun: c.cfg().Streaming.DryRun,
		RotateEvery: c.cfg().Streaming.RotateEvery, Arrivals: c.arrivals,
		Client: client, Credentials: c.credentials, Recorder: c.trail, Presence: presence, Newest: &c.newest,
		Logger: c.log, Registerer: shown,
	})
	c.runActing("streaming config", reconciler.Run)
	// Ingest has been taking pushes for a while; a refused one is told of from now on.
	c.arrivals.OnRefused(reconciler.LookNow)
	c.reconciler.Store(reconciler)
	c.acting.push("questions about the streaming config", func(context.Context) error {
		c.arrivals.OnRefused(func(credentials.Environment) {})
		c.reconciler.Store(nil)
		return nil
	})
	shown.addStatus("streaming", func(context.Context) (any, error) { return reconciler.Health(), nil })
}

func (c *control) startSettings(client *management.Client, presence *workspace.Presence, shown *shown) error {
	if c.cfg().Settings.Disabled {
		return nil
	}
	watched := slices.DeleteFunc(slices.Clone(c.cfg().Environments), func(e config.Environment) bool { return e.SkipSettings })
	watcher := workspace.NewWatcher(workspace.WatcherOptions{
		Client: client.GivingWay(), Trail: c.trail, Presence: presence, Newest: &c.newest, Environments: watched,
		Interval: c.cfg().Settings.Interval, Intervals: c.cfg().Settings.Intervals, Logger: c.log, Registerer: shown,
	})
	c.runActing("settings", watcher.Run)
	shown.addStatus("settings", func(context.Context) (any, error) { return watcher.Status(), nil })
	return c.startPolicies(watched, shown)
}

// startPolicies holds the settings against the rules. Without rules, it ends the violations of
// those that there were.
func (c *control) startPolicies(watched []config.Environment, shown *shown) error {
	p := c.cfg().Policies
	rules, err := workspace.CompileRules(p.All())
	if err != nil {
		return err
	}
	policies := workspace.NewPolicies(workspace.PoliciesOptions{
		Trail: c.trail, Rules: rules, Exceptions: exceptionsOf(p), Environments: watched, Logger: c.log, Registerer: shown,
	})
	c.runActing("policies", policies.Run)
	shown.addStatus("policies", func(context.Context) (any, error) { return policies.Status(), nil })
	return nil
}

func exceptionsOf(p config.Policies) (all []workspace.PolicyException) {
	for _, e := range p.Exceptions {
		all = append(all, workspace.PolicyException{Rule: e.Rule, Project: e.Project, Environment: e.Environment, Until: e.End(), Reason: e.Reason})
	}
	return all
}

// streaming keeps the streaming configs; its error is for people.
func (c *control) streaming() (*streaming.Reconciler, error) {
	if c.cfg().Workspace == nil {
		return nil, errors.New("the configuration has no workspace section to reach the streaming configs through")
	}
	return ifStarted(&c.reconciler, "the relay is still starting; try again")
}

// ifStarted is a part that starts later than others that ask it; without it the error is for people.
func ifStarted[T any](part *atomic.Pointer[T], without string) (*T, error) {
	if it := part.Load(); it != nil {
		return it, nil
	}
	return nil, errors.New(without)
}

// gauge is a metric whose value is asked for at each scrape.
func gauge(name, help string, value func() float64) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, value)
}

// oneIf is the value of a metric that says whether something is so.
func oneIf(so bool) float64 {
	if so {
		return 1
	}
	return 0
}

// startFormers watches the environments that were taken out of the configuration. client
// is nil without a workspace: then only their refused pushes tell of them.
func (c *control) startFormers(client *management.Client, shown *shown) error {
	formers := streaming.NewFormers(streaming.Options{
		Environments: c.cfg().Environments, Client: client, Credentials: c.credentials, Interval: c.cfg().Streaming.Interval, Logger: c.log,
	})
	if err := shown.Register(formers); err != nil {
		return fmt.Errorf("register the metrics of former environments: %w", err)
	}
	c.runActing("former environments", formers.Run)
	shown.addStatus("not_configured", func(context.Context) (any, error) { return formers.Status(), nil })
	shown.addCheck(admin.Check{Name: "config", Probe: func(context.Context) (string, error) { return formersRemark(formers.Status()), nil }})
	return nil
}

// mostFormers bounds how many of them are named in one line.
const mostFormers = 3

// formersRemark names the environments whose events are lost because they are not
// configured. No push would be saved by sending it elsewhere, so the relay stays ready.
func formersRemark(all []streaming.FormerStatus) string {
	var losing []string
	for _, s := range all {
		if s.Losing {
			losing = append(losing, fmt.Sprintf("%s/%s: %s. Do: %s", s.Project, s.Environment, s.Reason, s.Action))
		}
	}
	if len(losing) == 0 {
		return "every environment whose event log comes here is configured"
	}
	more := ""
	if n := len(losing) - mostFormers; n > 0 {
		losing, more = losing[:mostFormers], fmt.Sprintf("; and %d more, in /status", n)
	}
	return "warning: " + strings.Join(losing, "; ") + more
}

// startDesk lets people act on the workspace, once it has ended an earlier process's open
// actions in the trail.
func (c *control) startDesk(client *management.Client) {
	set := c.cfg().Environments
	if c.cfg().Streaming.DryRun {
		set = nil // the relay sets none of them
	}
	desk := workspace.New(client, c.trail, set, c.log)
	c.acting.push("questions to the desk", func(context.Context) error { c.desk.Store(nil); return nil })
	c.runActing("desk", func(ctx context.Context) {
		if c.insist(ctx, "ending the actions on the workspace that an earlier process left open", desk.EndOpen) == nil {
			c.desk.Store(desk)
		}
	})
}

// insist calls do until it succeeds or ctx ends.
func (r *process) insist(ctx context.Context, what string, do func(context.Context) error) error {
	return retry.Insist(ctx, r.log, what, func(error) bool { return false }, func() error { return do(ctx) })
}

func (c *control) deskForPeople() (*workspace.Desk, error) {
	if c.cfg().Workspace == nil {
		return nil, errors.New("the configuration has no workspace section, so the workspace cannot be asked")
	}
	return ifStarted(&c.desk, "the relay cannot act on the workspace yet: it is starting, or its audit trail cannot be used ('/status' and the log say why); try again")
}
