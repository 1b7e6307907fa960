package workspace

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"time"

	"github.com/nats-io/nuid"

	"github.com/auditrelay/auditrelay/internal/jsontext"
	"github.com/auditrelay/auditrelay/internal/retry"
	"github.com/auditrelay/auditrelay/internal/trail/audit"
	"github.com/auditrelay/auditrelay/internal/workspace/management"
	"github.com/auditrelay/auditrelay/internal/workspace/meaning"
)

// SubjectOf is the resource of an operation's entries, in each project and environment.
func SubjectOf(operation string) string { return "workspace_actions/" + operation }

// The types of the entries.
const (
	// TypeIntended comes before the call. Its Before is the state as the person saw it.
	TypeIntended = "action.intended"
	// TypeEnded comes after it. Its After is the resource in the API's answer.
	TypeEnded = "action.ended"
)

// The outcomes of an action.
const (
	OutcomeDone = "done"
	// OutcomeRefused: the API refused it, or it was never sent, so nothing changed.
	OutcomeRefused = "refused"
	// OutcomeUnknown: the answer was lost, or the relay ended before it came.
	OutcomeUnknown = "unknown"
)

// ofNoProject stands for the project of actions on the workspace itself.
const ofNoProject = "-"

// underWay is how long another host's action may go without an end. The client's calls
// end far earlier.
const underWay = 30 * time.Minute

// action is the Detail of both entries.
type action struct {
	Action string `json:"action"` // an id
	// Summary, Severity and Direction are for people, of an entry only.
	Summary   string            `json:"summary,omitempty"`
	Severity  meaning.Severity  `json:"severity,omitempty"`
	Direction meaning.Direction `json:"direction,omitempty"`
	Operation string            `json:"operation"`
	Arguments map[string]string `json:"arguments,omitempty"`
	// LastFour are the last four characters of the secret that streaming.set sets.
	LastFour string    `json:"last_four,omitempty"`
	Person   Person    `json:"person"`
	Reason   string    `json:"reason,omitempty"`
	Relay    string    `json:"relay,omitempty"` // the host name of the acting relay
	Begun    time.Time `json:"begun"`

	// Of TypeEnded.
	Outcome   string `json:"outcome,omitempty"`
	RequestID string `json:"request_id,omitempty"`
	Status    int    `json:"status,omitempty"`
	Error     string `json:"error,omitempty"`

	project, environment string
}

func newAction(r Request, host string) *action {
	return &action{
		Action: nuid.Next(), Operation: r.Operation, Arguments: maps.Clone(r.Arguments), LastFour: r.Secret.LastFour(), Person: r.Person, Reason: r.Reason,
		Relay: host, Begun: time.Now().UTC(), project: cmp.Or(r.Project, ofNoProject), environment: r.Environment,
	}
}

// settle notes the API's answer.
func (a *action) settle(receipt management.Receipt, err error) {
	outcome, answered := Settle(receipt, err)
	if a.Outcome, a.RequestID, a.Status = outcome, answered.RequestID, answered.StatusCode; err != nil {
		a.Error = err.Error()
	}
	// A proxy may answer 404 as well: nothing is said about the call then.
	if a.Status == http.StatusNotFound && !management.SaysAbsent(err) {
		a.Outcome = OutcomeUnknown
	}
}

// Settle is the outcome of a call that changes something, and the receipt of its answer. receipt
// is that of a success, err the call's error.
func Settle(receipt management.Receipt, err error) (outcome string, answered management.Receipt) {
	var api *management.APIError
	switch {
	case err == nil, receipt.StatusCode != 0: // else it is a success with an unreadable answer
		return OutcomeDone, receipt
	case errors.Is(err, management.ErrNotSent):
		return OutcomeRefused, receipt
	case !errors.As(err, &api):
		return OutcomeUnknown, receipt
	}
	answered = management.Receipt{RequestID: api.RequestID, StatusCode: api.Status}
	if !api.Refused() {
		return OutcomeUnknown, answered
	}
	return OutcomeRefused, answered
}

func (a *action) entry(kind string, before, after json.RawMessage) *audit.Entry {
	told := *a
	told.Summary, told.Severity, told.Direction = "", "", ""
	judged := jsontext.Encode(told)
	told.Summary, told.Severity = meaning.OfEntry(kind, SubjectOf(a.Operation), judged)
	told.Direction = meaning.OfAction(kind, judged)
	return &audit.Entry{Type: kind, Before: before, After: after, Detail: jsontext.Encode(told)}
}

// intend records the intent. Where the newest action of the target has no end, it is
// ended first.
func (d *Desk) intend(ctx context.Context, a *action, p Plan) error {
	for {
		ended := false
		_, err := audit.Update(ctx, d.trail, a.project, a.environment, SubjectOf(a.Operation), func(last audit.Entry, found bool) (*audit.Entry, error) {
			open, isOpen := openAction(last, found)
			if ended = isOpen; !isOpen {
				return a.entry(TypeIntended, p.Before, nil), nil
			}
			if !d.mayEnd(open, last.Time) {
				return nil, fmt.Errorf("%w: %s by %s at %s, since %s; it counts as ended after %s", ErrUnderWay,
					open.Operation, open.Person, open.Relay, last.Time.Format(time.RFC3339), underWay)
			}
			return d.lost(open), nil
		})
		if err != nil || !ended {
			return err
		}
	}
}

// openAction is the action in an entry of an intent.
func openAction(last audit.Entry, found bool) (*action, bool) {
	if !found || last.Type != TypeIntended {
		return nil, false
	}
	a := &action{}
	_ = json.Unmarshal(last.Detail, a) // an unreadable one is ended without a name
	a.project, a.environment = last.Project, last.Environment
	return a, true
}

// mayEnd says whether nobody waits for the outcome any more. This process has no other
// action under way: the caller holds the lock, or nothing has begun yet.
func (d *Desk) mayEnd(a *action, since time.Time) bool {
	return a.Relay == d.host || time.Since(since) > underWay
}

// lost is the entry for the end of a after its relay was lost.
func (d *Desk) lost(a *action) *audit.Entry {
	a.Outcome = OutcomeUnknown
	a.Error = "the relay ended before the outcome was recorded; the API may have done it or not"
	return a.entry(TypeEnded, nil, nil)
}

// endWithin bounds the wait for an unusable trail.
const endWithin = 30 * time.Second

// end records the outcome. It goes on after the person has gone.
func (d *Desk) end(ctx context.Context, a *action, after json.RawMessage) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endWithin)
	defer cancel()
	for {
		_, err := audit.Update(ctx, d.trail, a.project, a.environment, SubjectOf(a.Operation), func(audit.Entry, bool) (*audit.Entry, error) {
			return a.entry(TypeEnded, nil, after), nil
		})
		if err == nil {
			d.log.Info("an action on the workspace has ended", "action", a.Action, "operation", a.Operation,
				"project", a.project, "environment", a.environment, "person", a.Person.String(), "outcome", a.Outcome, "error", a.Error)
			return nil
		}
		if retry.Sleep(ctx, time.Second) != nil {
			return fmt.Errorf("record the outcome %q of action %s (the next start records it as unknown): %w", a.Outcome, a.Action, err)
		}
	}
}

// EndOpen ends the actions left without an outcome by an earlier process of this host.
// Call it before the first Do.
func (d *Desk) EndOpen(ctx context.Context) error {
	d.acting.Lock()
	defer d.acting.Unlock()
	for operation, op := range operations {
		if op.do == nil {
			continue // it leaves no entries
		}
		newest, err := d.trail.Newest(ctx, SubjectOf(operation))
		if err != nil {
			return fmt.Errorf("find actions without an outcome: %w", err)
		}
		for _, e := range newest {
			if err := d.endOpen(ctx, e); err != nil {
				return err
			}
		}
	}
	return nil
}

func (d *Desk) endOpen(ctx context.Context, e audit.Entry) error {
	ended, err := audit.Update(ctx, d.trail, e.Project, e.Environment, e.Subject, func(last audit.Entry, found bool) (*audit.Entry, error) {
		open, isOpen := openAction(last, found)
		if !isOpen || !d.mayEnd(open, last.Time) {
			return nil, nil //nolint:nilnil // nothing to record is no error
		}
		return d.lost(open), nil
	})
	if err != nil {
		return fmt.Errorf("end an action of %s/%s without an outcome: %w", e.Project, e.Environment, err)
	}
	if ended != nil {
		d.log.Warn("an action on the workspace has no known outcome: the relay ended during it",
			"project", e.Project, "environment", e.Environment, "intent", e.Index)
	}
	return nil
}
