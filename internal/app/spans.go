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
	for shard, log := range c.journal.Logs() {
		keeper := eventproof.New(eventproof.Options{Subject: eventproof.SubjectOf(shard), Interval: cfg.Interval, Events: cfg.Events, Logger: c.log})
		log.Seal(keeper.Note)
		log.KeepAfter(func() uint64 { return keeper.State().Through })
		c.spans = append(c.spans, keeper)
		c.stack.push("event spans", background(func(ctx context.Context) {
			select {
			case <-c.calm: // an earlier process may have left much of the journal to be digested
				keeper.Run(ctx, log, c.trail)
			case <-ctx.Done():
			}
		}))
	}
	c.admin.AddCheck(admin.Check{Name: "event spans", Probe: c.spansRemark})
	c.admin.AddStatus("spans", func(context.Context) (any, error) { return c.spanStates(), nil })
	return nil
}

// spanStates are how far the spans have come: in each log, where there are several.
func (c *control) spanStates() any {
	if len(c.spans) == 1 {
		return c.spans[0].State()
	}
	states := make([]eventproof.State, len(c.spans))
	for i, keeper := range c.spans {
		states[i] = keeper.State()
	}
	return states
}

func (c *control) spansRemark(context.Context) (string, error) {
	for _, keeper := range c.spans {
		if s := keeper.State(); s.Failing != "" {
			return "warning: the digests of the event stream are late: " + s.Failing, nil
		}
	}
	return "none are late", nil
}
