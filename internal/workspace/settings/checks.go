package settings

import (
	"context"
	"time"

	"github.com/auditrelay/auditrelay/internal/workspace"
)

const (
	// checksSubject is the subject of entries about looks.
	checksSubject = "settings_checks"
	// typeChecked is their type.
	typeChecked = "settings.checked"
)

// notShown lists the settings without an operation to read them.
func notShown(environment string) []string {
	if environment == "" {
		return []string{"who made a change"}
	}
	return []string{"redirect URLs", "secrets", "public tokens", "who made a change"}
}

func (w *Watcher) checksOf(g *group) workspace.Checks {
	c := workspace.Checks{
		Trail: w.options.Trail, Project: g.project, Environment: g.environment,
		Subject: checksSubject, Type: typeChecked, NotShown: notShown(g.environment), Newest: w.options.Newest,
	}
	for _, x := range g.watches {
		c.Watch(x.resource.kind, x.every)
	}
	return c
}

// attest enters a check where the last one is at least age old.
func (w *Watcher) attest(ctx context.Context, g *group, age time.Duration) error {
	err := g.checks.Attest(ctx, age)
	if err != nil && ctx.Err() == nil && g.trailFailing.Again("") {
		w.options.Logger.Warn("attesting the looks at settings failed",
			append(g.trailFailing.Fields(), "project", g.project, "environment", g.environment, "error", err)...)
	}
	return err
}

// attestLast attests the remaining looks, at the end of Run.
func (w *Watcher) attestLast(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	for _, g := range w.groups {
		_ = w.attest(ctx, g, 0) // it was logged
	}
}
