package app

import (
	"context"
	"fmt"

	"github.com/auditrelay/auditrelay/relay"
)

// With more than warnShare of the disk budget undelivered, readiness warns.
const warnShare = 0.8

// journalReady says whether a push would be kept.
func (r *process) journalReady(ctx context.Context) (string, error) {
	if err := r.conn.Err(); err != nil {
		return "", err
	}
	u, err := r.journal.Usage(ctx)
	if err != nil {
		return "", err
	}
	if err := r.journal.Refusing(ctx); err != nil {
		return "", fmt.Errorf("the last push was refused: %w", err)
	}
	if err := r.someoneIsTaken(ctx); err != nil {
		return "", fmt.Errorf("pushes of every environment are refused: %w", err)
	}
	spent, waiting := percent(u.Bytes, u.MaxBytes), percent(u.Undelivered, u.MaxBytes)
	remark := fmt.Sprintf("%.1f%% of the disk budget is spent, %.1f%% on events still undelivered to some sink", spent, waiting)
	if waiting >= 100*warnShare {
		remark = "warning: " + remark + "; when they take it all, pushes are refused"
	}
	return remark, nil
}

func percent(part, whole int64) float64 { return 100 * float64(part) / float64(whole) }

// someoneIsTaken returns nil if the journal has room for at least one of the
// environments.
func (r *process) someoneIsTaken(ctx context.Context) (err error) {
	for _, e := range r.cfg.Environments {
		giveBack, refused := r.journal.Reserve(ctx, relay.SourceOf(e.Project, e.Environment), 0, int64(e.Quota.UndeliveredBytes))
		if refused == nil {
			giveBack()
			return nil
		}
		err = refused
	}
	return err
}
