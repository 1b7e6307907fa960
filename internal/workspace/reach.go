package workspace

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"time"

	"github.com/auditrelay/auditrelay/internal/jsontext"
	"github.com/auditrelay/auditrelay/internal/retry"
	"github.com/auditrelay/auditrelay/internal/trail/audit"
	"github.com/auditrelay/auditrelay/internal/workspace/management"
)

// The types of entries about the workspace as a whole.
const (
	// TypeUnreachable: no call to the API can succeed.
	TypeUnreachable = "workspace.unreachable"
	// TypeReachable: calls succeed again.
	TypeReachable = "workspace.reachable"
)

// The project and subject of these entries.
const (
	relayProject     = "auditrelay"
	subjectWorkspace = "workspace"
)

// reachDetail is the Detail of the entries. Since and Until are the time without a
// successful call, as far as this relay knows.
type reachDetail struct {
	Cause     management.Cause `json:"cause"`
	Since     time.Time        `json:"since,omitzero"`
	Until     time.Time        `json:"until,omitzero"`
	Error     string           `json:"error,omitempty"`
	RequestID string           `json:"request_id,omitempty"`
}

// retryEntry is the pause before an entry is tried again.
const retryEntry = 10 * time.Second

// FollowReach enters into the trail when the API cannot be used at all, and when it can
// again, once by cause, until ctx ends. The log repeats a lasting failure.
func FollowReach(ctx context.Context, client *management.Client, trail audit.Log, log *slog.Logger) {
	var failure retry.Failure
	for {
		now, changed := client.Reach()
		logReach(log, now, &failure)
		var again <-chan time.Time
		if now.Known && enterReach(ctx, trail, now) != nil { // the trail tells of itself
			again = time.After(retryEntry)
		}
		select {
		case <-changed:
		case <-again:
		case <-due(&failure):
		case <-ctx.Done():
			return
		}
	}
}

// due fires when a lasting failure is to be logged again.
func due(f *retry.Failure) <-chan time.Time {
	if !f.Lasts() {
		return nil
	}
	return time.After(time.Until(f.Due()))
}

func logReach(log *slog.Logger, now management.Reach, failure *retry.Failure) {
	if now.Cause == "" {
		if fields, was := failure.Over(); was {
			log.Info("the management API can be used again", fields...)
		}
		return
	}
	if !failure.Again(string(now.Cause)) {
		return
	}
	text := "the management API cannot be used; it is asked again every few seconds"
	switch now.Cause {
	case management.CauseUnauthorized:
		text = "the management API refuses the key; nothing is read or set until it takes it: check workspace.key_id and workspace.secret"
	case management.CauseThrottled:
		text = "the management API asked this relay to wait; nothing is read or set meanwhile: lower workspace.requests_per_second, or stop others that use the API of this workspace"
	}
	log.Error(text, append(failure.Fields(), "cause", now.Cause, "next_try", now.NextTry, "error", now.Error)...)
}

// enterReach appends the entry due after the trail's newest one.
func enterReach(ctx context.Context, trail audit.Log, now management.Reach) error {
	_, err := audit.Update(ctx, trail, relayProject, "", subjectWorkspace, func(last audit.Entry, found bool) (*audit.Entry, error) {
		var was reachDetail
		if found && last.Type == TypeUnreachable && json.Unmarshal(last.Detail, &was) != nil {
			return nil, fmt.Errorf("read entry %d", last.Index)
		}
		if was.Cause == now.Cause {
			return nil, nil //nolint:nilnil // nothing to enter is no error
		}
		e := &audit.Entry{Type: TypeUnreachable}
		d := reachDetail{Cause: now.Cause, Since: now.Since.UTC(), Error: now.Error, RequestID: now.RequestID}
		if now.Cause == "" {
			e.Type = TypeReachable
			d = reachDetail{Cause: was.Cause, Since: was.Since, Until: now.Since.UTC()}
		}
		e.Detail = jsontext.Encode(d)
		return e, nil
	})
	return err
}
