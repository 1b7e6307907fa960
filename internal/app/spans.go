package app

import (
	"context"

	"github.com/auditrelay/auditrelay/internal/control/admin"
	"github.com/auditrelay/auditrelay/internal/trail/eventproof"
)

// startSpans enters digests of the event stream into the trail. Late ones are a warning:
// nothing waits for them.
func (c *control) startSpans(context.Context) error {
	cfg := c.cfg().Audit.Spans
	if cfg.Disabled {
		return nil
	}
	c.spans = eventproof.New(eventproof.Options{Interval: cfg.Interval, Events: cfg.Events, Logger: c.log})
	c.journal.Seal(c.spans.Note)
	c.stack.push("event spans", background(func(ctx context.Context) {
		select {
		case <-c.calm: // an earlier process may have left much of the journal to be digested
			c.spans.Run(ctx, c.journal, c.trail)
		case <-ctx.Done():
		}
	}))
	c.admin.AddCheck(admin.Check{Name: "event spans", Probe: c.spansRemark})
	c.admin.AddStatus("spans", func(context.Context) (any, error) { return c.spans.State(), nil })
	return nil
}

func (c *control) spansRemark(context.Context) (string, error) {
	if s := c.spans.State(); s.Failing != "" {
		return "warning: the digests of the event stream are late: " + s.Failing, nil
	}
	return "none are late", nil
}
