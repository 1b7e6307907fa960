package app

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/auditrelay/auditrelay/internal/audit"
	"github.com/auditrelay/auditrelay/internal/journal"
)

// ownProject is the project of audit entries that concern the relay itself.
const ownProject = "auditrelay"

// startQuarantineWatch puts an entry into the trail for each run of records
// that could not be read. The quarantine is what it goes by, and the trail what
// it compares with: so it is told once, whatever line a crash hits.
func (r *process) startQuarantineWatch(context.Context) error {
	r.stack.push("quarantine watch", background(func(ctx context.Context) {
		if err := r.journal.FollowQuarantine(ctx, r.recordQuarantined); ctx.Err() == nil {
			r.fail(err)
		}
	}))
	return nil
}

func (r *process) recordQuarantined(ctx context.Context, q journal.Quarantined) error {
	subject := fmt.Sprintf("journal %s position %d", q.Stream, q.From)
	_, found, err := r.trail.Last(ctx, ownProject, "", subject)
	if err != nil || found {
		return err
	}
	detail, err := json.Marshal(q)
	if err != nil {
		return fmt.Errorf("encode quarantined positions: %w", err)
	}
	_, err = r.trail.AppendIf(ctx, audit.Entry{
		Type: "journal.quarantined", Project: ownProject, Subject: subject, Time: time.Now(), Detail: detail,
	}, -1)
	return err // of a conflict, too: the next look finds the entry
}
