package settings

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/auditrelay/auditrelay/internal/audit"
)

// checksSubject is a subject of its own: a check never becomes the newest entry of a
// setting.
const checksSubject = "settings_checks"

// tally counts looks since the last check.
type tally struct {
	looks, failures int
	from            time.Time // the start of the first look
	last            time.Time // the start of the last look
	until           time.Time // its end
}

func (t *tally) add(started, ended time.Time) {
	if t.looks == 0 {
		t.from = started
	}
	t.looks++
	t.last, t.until = started, ended
}

// check is the Detail of "settings.checked": between From and Until there were Looks
// rounds. If a process crashes before it attests its looks, they are not counted
// anywhere.
type check struct {
	From      time.Time              `json:"from"`
	Until     time.Time              `json:"until"`
	Looks     int                    `json:"looks"`
	Resources map[Kind]checkResource `json:"resources"`
	// NotShown is what the API cannot show: changes of it are in no entry.
	NotShown []string `json:"not_shown"`
}

// notShown lists what no operation reads.
func notShown(environment string) []string {
	if environment == "" {
		return []string{"who made a change"}
	}
	return []string{"redirect URLs", "secrets", "public tokens", "who made a change"}
}

// checkResource counts the reads of a setting and their failures; Every is the configured
// time between two. SHA256 is the hash of
// the last good look: of the canonical JSON in the After of the setting's newest entry.
type checkResource struct {
	Every    string    `json:"every"`
	Looks    int       `json:"looks"`
	Failures int       `json:"failures,omitempty"`
	LastLook time.Time `json:"last_look,omitzero"`
	SHA256   string    `json:"sha256,omitempty"`
	// Requests are the request ids of the last good look.
	Requests []string `json:"request_ids,omitempty"`
}

func checkOf(e audit.Entry) check {
	var c check
	if json.Unmarshal(e.Detail, &c) != nil {
		return check{}
	}
	return c
}

// attestIfDue enters a check where the last one is old enough. The first is
// due a whole period after the first look, and a restart puts none off.
func (w *Watcher) attestIfDue(ctx context.Context, g *group) error {
	err := w.attestIfOlder(ctx, g, w.checkEvery)
	if err != nil && !g.trailFailing && ctx.Err() == nil {
		w.log.Warn("attesting the looks at settings failed", "project", g.project, "environment", g.environment, "error", err)
		g.trailFailing = true
	}
	return err
}

func (w *Watcher) attestIfOlder(ctx context.Context, g *group, age time.Duration) error {
	if g.lastCheck.IsZero() {
		g.lastCheck = g.tally.from
		last, found, err := w.trail.Last(ctx, g.project, g.environment, checksSubject)
		if err != nil {
			g.lastCheck = time.Time{}
			return fmt.Errorf("read the last check: %w", err)
		}
		if found {
			g.lastCheck = last.Time
		}
	}
	if g.tally.looks == 0 || time.Since(g.lastCheck) < age {
		return nil
	}
	return w.attest(ctx, g)
}

// attest enters the looks since the last check. Where that fails, or its outcome is
// unknown, the looks stay counted. The next check covers them, perhaps again: it says
// from when.
func (w *Watcher) attest(ctx context.Context, g *group) error {
	e, err := audit.Update(ctx, w.trail, g.project, g.environment, checksSubject, func(audit.Entry, bool) (*audit.Entry, error) {
		return &audit.Entry{
			Type: "settings.checked", Project: g.project, Environment: g.environment, Subject: checksSubject,
			Time: time.Now(), Detail: encode(g.check()),
		}, nil
	})
	if err != nil {
		return fmt.Errorf("enter a check of %s/%s: %w", g.project, g.environment, err)
	}
	g.lastCheck, g.tally = e.Time, tally{}
	for _, x := range g.watches {
		x.tally = tally{}
	}
	return nil
}

func (g *group) check() check {
	c := check{From: g.tally.from, Until: g.tally.until, Looks: g.tally.looks, Resources: map[Kind]checkResource{}, NotShown: notShown(g.environment)}
	for _, x := range g.watches {
		c.Resources[x.resource.Kind] = checkResource{
			Every: x.every.String(), Looks: x.tally.looks, Failures: x.tally.failures, LastLook: x.tally.last, SHA256: x.agreed.hash, Requests: x.agreed.requests,
		}
	}
	return c
}

// attestLast attests the remaining looks, at the end of Run.
func (w *Watcher) attestLast(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	for _, g := range w.groups {
		if err := w.attestIfOlder(ctx, g, 0); err != nil {
			w.log.Warn("attesting the looks at settings failed", "project", g.project, "environment", g.environment, "error", err)
		}
	}
}
