package app

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/auditrelay/auditrelay/internal/journal"
	"github.com/auditrelay/auditrelay/internal/trail/audit"
)

// ownProject is the project of audit entries about the relay itself.
const ownProject = "auditrelay"

// startQuarantineWatch puts an entry into the trail for each run of lost positions. It
// compares the quarantine with the trail: each is told once, whatever line a crash hits.
func (c *control) startQuarantineWatch(context.Context) error {
	c.stack.push("quarantine watch", background(func(ctx context.Context) {
		c.recordHomes(ctx)
		if err := c.quarantine.Follow(ctx, c.recordQuarantined); ctx.Err() == nil {
			c.fail(err)
		}
	}))
	return nil
}

// damageRemark names the waiting sinks, and their reasons. Pushes are taken all the
// while, so it is no reason to send them elsewhere.
func (r *process) damageRemark(context.Context) (string, error) {
	d := r.quarantine.Damage()
	switch {
	case len(d.Waiting) > 0:
		var waits []string
		for sink, why := range d.Waiting {
			waits = append(waits, fmt.Sprintf("%s waits for %s", sink, why))
		}
		slices.Sort(waits)
		return "warning: " + strings.Join(waits, "; ") + "; see 'auditrelay journal accept-damage --help'", nil
	case d.Records > 0:
		return fmt.Sprintf("%d records are damaged or lost; the quarantine names them", d.Records), nil
	default:
		return "none", nil
	}
}

func (c *control) recordQuarantined(ctx context.Context, loss journal.Loss) error {
	return c.recordOnce(ctx, "journal.quarantined", loss.Subject(), loss)
}

// recordHomes tells of the journals given up by a command, and of the newest move of the journal.
func (c *control) recordHomes(ctx context.Context) {
	record := func(typ string, of Home, what string, at time.Time, about any) {
		_ = c.insist(ctx, "entering into the audit trail that a journal was "+what, func(ctx context.Context) error { // or ctx ends
			return c.recordOnce(ctx, typ, fmt.Sprintf("%s, %s at %s", of, what, at.Format(time.RFC3339)), about)
		})
	}
	for _, old := range c.homes.LetGo {
		record("journal.let_go", old.Home, "let go", old.Time, old)
	}
	if m := c.homes.Moved; m != nil {
		record("journal.moved", m.From, "moved", m.Time, m)
	}
}

// recordOnce puts an entry into the trail, unless it has one of the subject.
func (c *control) recordOnce(ctx context.Context, typ, subject string, about any) error {
	_, err := audit.Update(ctx, c.trail, ownProject, "", subject, func(_ audit.Entry, found bool) (*audit.Entry, error) {
		if found {
			return nil, nil //nolint:nilnil // nothing is due
		}
		detail, err := json.Marshal(about)
		if err != nil {
			return nil, fmt.Errorf("encode the entry about %s: %w", subject, err)
		}
		return &audit.Entry{Type: typ, Project: ownProject, Subject: subject, Time: time.Now(), Detail: detail}, nil
	})
	return err
}
