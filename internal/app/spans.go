package app

import (
	"context"

	"github.com/auditrelay/auditrelay/internal/control/admin"
	"github.com/auditrelay/auditrelay/internal/journal"
	"github.com/auditrelay/auditrelay/internal/trail/eventproof"
)

// makeSpans makes the keeper of the spans, and returns the function for the journal to
// tell it of records. It is nil without spans.
func (r *process) makeSpans() func(journal.Sealed) {
	cfg := r.cfg.Audit.Spans
	if cfg.Disabled {
		return nil
	}
	r.spans = eventproof.New(eventproof.Options{Interval: cfg.Interval, Events: cfg.Events, Logger: r.log})
	return r.spans.Note
}

// startSpans enters digests of the event stream into the trail. Late ones are a warning:
// nothing waits for them.
func (r *process) startSpans(context.Context) error {
	if r.spans == nil {
		return nil
	}
	r.stack.push("event spans", background(func(ctx context.Context) {
		select {
		case <-r.up: // an earlier process may have left much of the journal to be digested
			r.spans.Run(ctx, r.journal, r.trail)
		case <-ctx.Done():
		}
	}))
	r.admin.AddCheck(admin.Check{Name: "event spans", Probe: r.spansRemark})
	r.admin.AddStatus("spans", func(context.Context) (any, error) { return r.spans.State(), nil })
	return nil
}

func (r *process) spansRemark(context.Context) (string, error) {
	if s := r.spans.State(); s.Failing != "" {
		return "warning: the digests of the event stream are late: " + s.Failing, nil
	}
	return "none are late", nil
}
