package workspace

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/auditrelay/auditrelay/internal/audit"
)

// changes names the operation behind a change of each readable resource, by the subject
// of the resource's entries. The other operations change nothing readable.
var changes = map[string]string{
	"project":                 "project.rename",
	"default_email_templates": "templates.default.unset",
	"event_log_streaming":     streamingSet,
}

// Behind finds the newest action able to change a resource within a window: its id, and
// its person as user@host. Both are empty where there is none. In one window, such an
// action and a change from outside look the same.
func Behind(ctx context.Context, trail audit.Log, project, environment, subject string, w audit.Window) (id, person string, err error) {
	operation, ok := changes[subject]
	if !ok {
		return "", "", nil
	}
	e, found, err := trail.Last(ctx, project, environment, SubjectOf(operation))
	if err != nil {
		return "", "", fmt.Errorf("read the actions on %s: %w", subject, err)
	}
	var a action
	if found {
		_ = json.Unmarshal(e.Detail, &a) // an unreadable one has no id
	}
	if a.Action == "" || a.Outcome == OutcomeRefused {
		return "", "", nil
	}
	// It lasted from Begun until its end was recorded; the end of an intent is open.
	if a.Begun.After(w.Until) || e.Type == TypeEnded && e.Time.Before(w.After) {
		return "", "", nil
	}
	return a.Action, a.Person.User + "@" + a.Person.Host, nil
}
