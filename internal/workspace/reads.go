package workspace

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/auditrelay/auditrelay/internal/workspace/management"
)

const (
	// readsSubject is the subject of entries about failing reads.
	readsSubject = "settings_reads"
	// typeReadsFailed marks an entry with the failing reads of a project or an environment,
	// and their causes.
	typeReadsFailed = "settings.failed"
	// typeReadsRecovered marks an entry about the end of failures: all reads succeed again.
	typeReadsRecovered = "settings.recovered"
)

// errTrail marks a failure of the trail, and not of a read.
var errTrail = errors.New("enter into the trail")

func inTrail(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: %w", errTrail, err)
}

// failed notes how the look at a kind ended.
func (g *group) failed(kind string, err error) {
	switch {
	case err == nil:
		delete(g.failing, kind)
	case errors.Is(err, errTrail): // it says nothing about the read
	case errors.Is(err, errImplausible):
		g.failing[kind] = Failure{Cause: errImplausible.Error(), Error: err.Error()}
	default:
		g.failing[kind] = Failure{Cause: management.CauseOf(err), Error: err.Error()}
	}
}

// stopped notes an unfinished round.
func (g *group) stopped(w *Watcher, err error) {
	for _, x := range g.watches {
		w.note(x.resource, func(s *SettingStatus) { s.LastFailure, s.Error = time.Now(), err.Error() })
	}
}

// tellFailures enters the failing reads, once by cause, and once when they are over. It
// logs them likewise, and repeats lasting ones. err is this round's failure.
func (w *Watcher) tellFailures(ctx context.Context, g *group, err error) error {
	entering := w.failuresEntered(ctx, g)
	trail := errors.Is(err, errTrail) || entering != nil
	switch err := errors.Join(err, entering); {
	case !trail:
		g.trailFailing.Over()
	case g.trailFailing.Again(""):
		w.options.Logger.Warn("settings cannot be entered into the trail; the next looks try again",
			append(g.trailFailing.Fields(), "project", g.project, "environment", g.environment, "error", err)...)
	}
	return entering
}

func (w *Watcher) failuresEntered(ctx context.Context, g *group) error {
	causes := ""
	for _, kind := range slices.Sorted(maps.Keys(g.failing)) {
		causes += fmt.Sprintf("%s: %s; ", kind, g.failing[kind].Cause)
	}
	w.logFailures(g, causes)
	return inTrail(g.failures.Note(ctx, g.failing))
}

func (w *Watcher) logFailures(g *group, causes string) {
	about := []any{"project", g.project, "environment", g.environment}
	if causes == "" {
		if fields, was := g.readsFailing.Over(); was {
			w.options.Logger.Info("all settings can be read again", append(about, fields...)...)
		}
		return
	}
	if !g.readsFailing.Again(causes) {
		return
	}
	var errs []string
	for _, kind := range slices.Sorted(maps.Keys(g.failing)) {
		errs = append(errs, g.failing[kind].Error)
	}
	w.options.Logger.Warn("settings cannot be read; their old states stand", append(append(about, g.readsFailing.Fields()...), "errors", errs)...)
}

const (
	// checksSubject is the subject of entries about looks.
	checksSubject = "settings_checks"
	// typeSettingsChecked is their type.
	typeSettingsChecked = "settings.checked"
)

// hidden lists the settings without an operation to read them.
func hidden(environment string) []string {
	if environment == "" {
		return []string{"who made a change"}
	}
	return []string{"redirect URLs", "secrets", "public tokens", "who made a change"}
}

func (w *Watcher) checksOf(g *group) Checks {
	c := Checks{
		Trail: w.options.Trail, Project: g.project, Environment: g.environment,
		Subject: checksSubject, Type: typeSettingsChecked, NotShown: hidden(g.environment), Newest: w.options.Newest,
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

// attestLast attests the remaining looks at a group, at the end of Run.
func (w *Watcher) attestLast(ctx context.Context, g *group) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	_ = w.attest(ctx, g, 0) // it was logged
}
