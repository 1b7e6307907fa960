package app

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/auditrelay/auditrelay/internal/ingest/credentials"
	"github.com/auditrelay/auditrelay/internal/trail/audit"
)

func (r *process) startCredentials(ctx context.Context) (err error) {
	damaged := prometheus.NewCounter(prometheus.CounterOpts{
		Name: "auditrelay_credentials_damaged_total", Help: "Damaged credential records found.",
	})
	r.reg.MustRegister(damaged)
	r.damaged = make(chan credentials.Damage, 64)
	r.credentials, err = credentials.Open(ctx, r.store.Table(), credentials.Options{
		Environments: r.cfg().Environments, Overlap: *r.cfg().Streaming.RotationOverlap, Logger: r.log,
		Damaged: func(d credentials.Damage) {
			damaged.Inc()
			select {
			case r.damaged <- d:
			default: // it is in the log, and the next start reports it again
			}
		},
	})
	if err != nil {
		return fmt.Errorf("open the push credentials: %w", err)
	}
	r.stack.push("credentials", func(context.Context) error { r.credentials.Close(); return nil })
	return nil
}

// startDamage enters the damage of credentials into the trail.
func (c *control) startDamage(context.Context) error {
	c.stack.push("entries of damaged credentials", background(func(ctx context.Context) {
		each(ctx, c.damaged, func(d credentials.Damage) { c.recordDamaged(ctx, d) })
	}))
	return nil
}

// recordDamaged enters damage of a credential record into the trail, as soon as the
// trail can be used. After a crash before that, the next start reports the damage again.
func (c *control) recordDamaged(ctx context.Context, d credentials.Damage) {
	detail, _ := json.Marshal(map[string]any{"problem": d.Problem, "lost": d.Lost}) // a text and a bool can be encoded
	e := audit.Entry{
		Type: "credentials.damaged", Project: d.Environment.Project, Environment: d.Environment.Environment,
		Subject: "push_credential", Time: time.Now(), Detail: detail,
	}
	_ = c.insist(ctx, "entering the damage of a push credential into the audit trail", func(ctx context.Context) error {
		_, err := c.trail.Append(ctx, e)
		if err == nil {
			// A crash before the next line makes a second entry.
			err = c.credentials.Reported(ctx, d.Environment)
		}
		return err
	})
}
