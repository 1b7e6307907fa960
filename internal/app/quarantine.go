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
		for _, old := range c.homes.LetGo {
			c.recordLetGo(ctx, old)
		}
		c.recordMoved(ctx)
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

// recordLetGo tells of a journal given up by a command. If this fails, the next start
// tells it.
func (c *control) recordLetGo(ctx context.Context, old LetGo) {
	subject := fmt.Sprintf("%s, let go at %s", old.Home, old.Time.Format(time.RFC3339))
	if err := c.recordOnce(ctx, "journal.let_go", subject, old); err != nil && ctx.Err() == nil {
		c.log.Warn("recording a given-up journal in the trail failed; the next start tries again", "error", err)
	}
}

// recordMoved tells of the newest move of the journal. If this fails, the next start tells it.
func (c *control) recordMoved(ctx context.Context) {
	m := c.homes.Moved
	if m == nil {
		return
	}
	subject := fmt.Sprintf("%s, moved at %s", m.From, m.Time.Format(time.RFC3339))
	if err := c.recordOnce(ctx, "journal.moved", subject, m); err != nil && ctx.Err() == nil {
		c.log.Warn("recording the move of the journal in the trail failed; the next start tries again", "error", err)
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
