// Package workspace is what everybody who looks at the workspace, or changes it, has in common.
//
// Of the looks it holds the cause of a change, removed environments, failing reads, an unusable
// API, and the attestation of the looks, each as entries of the audit trail. All of it compares
// with the trail's newest entry before it appends, so that a state enters once, whatever crashed
// before, and whoever else is looking.
//
// A [Desk] performs the operations of the Workspace Management API for a person: reads at once,
// and mutations with a trace in the audit trail. A mutation writes two entries: action.intended before the call, with the person, the
// reason and the state before, and action.ended after it, with the outcome and the
// request id. Both belong to the resource [SubjectOf] their environment or project.
//
// A crash between the two leaves an intent without an end. The next start ends it with
// the outcome "unknown" (see [Desk.EndOpen]): the API may have done it or not. The
// settings' next look decides.
//
// A [Watcher] watches the settings, and [Policies] hold them against rules.
package workspace

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/config/secret"
	"github.com/auditrelay/auditrelay/internal/jsontext"
	"github.com/auditrelay/auditrelay/internal/trail/audit"
	"github.com/auditrelay/auditrelay/internal/workspace/management"
)

// Request asks for an operation.
type Request struct {
	// Operation is a name of the table in operations.go, such as "project.rename".
	Operation string `json:"operation"`
	// Project and Environment are slugs. Some operations belong to a project, and the
	// creation of a project to neither.
	Project     string `json:"project,omitempty"`
	Environment string `json:"environment,omitempty"`
	// Arguments are the operation's, by name. None of them is a secret.
	Arguments map[string]string `json:"arguments,omitempty"`
	// Secret is the destination's key or password of streaming.set. It is in no entry.
	Secret secret.Text `json:"-"`

	// Of a mutation: who asks for it, and why.
	Person Person `json:"-"`
	Reason string `json:"reason,omitempty"`
	// Seen is the Plan.Seen agreed to by the person; empty for none.
	Seen string `json:"seen,omitempty"`
}

// Person is somebody who asks for an action.
type Person = audit.Person

// Plan is the effect of a mutation.
type Plan struct {
	// Changes are sentences, at least one.
	Changes []string `json:"changes"`
	// Before is the present state, as the API shows it; empty where it shows none.
	Before json.RawMessage `json:"before,omitempty"`
	// Seen stands for Before: Do refuses to act on another state.
	Seen string `json:"seen,omitempty"`
}

// Outcome is the end of an operation.
type Outcome struct {
	// Action is the id in both entries of a mutation.
	Action    string `json:"action,omitempty"`
	RequestID string `json:"request_id,omitempty"`
	Status    int    `json:"status,omitempty"` // of HTTP
	// Result is the resource in the answer, without secrets.
	Result json.RawMessage `json:"result,omitempty"`
}

var (
	// ErrUsage marks a faulty request; the API was not asked.
	ErrUsage = errors.New("wrong request")
	// ErrChanged means a state other than the one the person agreed to.
	ErrChanged = errors.New("the setting has changed since it was shown: look again")
	// ErrUnderWay means an unfinished action of another relay on the same target.
	ErrUnderWay = errors.New("another action is under way there")
)

// Trail is the audit trail, as far as this room needs it.
type Trail interface {
	audit.Log
	// Newest returns the newest entry of each resource with this subject.
	Newest(ctx context.Context, subject string) ([]audit.Entry, error)
	// End is the number of entries, those of other relays too.
	End(ctx context.Context) (int64, error)
}

// Desk performs operations. Its methods may be called concurrently; mutations wait for
// each other.
type Desk struct {
	client       *management.Client
	trail        Trail
	environments []config.Environment
	host         string
	log          *slog.Logger

	acting sync.Mutex // held over a mutation
}

// New makes a desk. The environments are the configured ones: the relay keeps the streaming
// config of some of them as desired, and Do refuses to set it there.
func New(client *management.Client, trail Trail, environments []config.Environment, log *slog.Logger) *Desk {
	host, _ := os.Hostname() // unknown: then only age ends another process's actions
	return &Desk{client: client, trail: trail, environments: environments, host: host, log: cmp.Or(log, slog.New(slog.DiscardHandler))}
}

// Read performs a reading operation.
func (d *Desk) Read(ctx context.Context, r Request) (Outcome, error) {
	op, err := d.operation(r)
	switch {
	case err != nil:
		return Outcome{}, err
	case op.do != nil:
		return Outcome{}, fmt.Errorf("%w: %s changes the workspace; plan it first", ErrUsage, r.Operation)
	}
	a, err := op.read(management.ForPerson(ctx), d.client, r)
	return Outcome{RequestID: a.RequestID, Status: a.StatusCode, Result: a.Raw}, err
}

// Plan previews a mutation, and changes nothing.
func (d *Desk) Plan(ctx context.Context, r Request) (Plan, error) {
	op, err := d.mutation(r)
	if err != nil {
		return Plan{}, err
	}
	return d.plan(management.ForPerson(ctx), op, r)
}

func (d *Desk) plan(ctx context.Context, op Operation, r Request) (Plan, error) {
	p := Plan{}
	if op.read != nil {
		a, err := op.read(ctx, d.client, r)
		lacks := management.IsNotFound(err) && op.mayLack
		var state jsontext.State // the API may write it in another order the next time
		if err == nil {
			state, err = jsontext.Read(a.Raw)
		}
		switch {
		case lacks:
		case err != nil:
			return Plan{}, fmt.Errorf("read the present state: %w", err)
		default:
			p.Before, p.Seen = a.Raw, jsontext.Hash(state.JSON)
		}
	}
	p.Changes = op.plan(r, p.Before)
	return p, nil
}

// Do performs a mutation, between two entries. Where the intent cannot be recorded,
// nothing is done. An error with an Outcome.Action came after the intent: the entries
// have all that is known.
func (d *Desk) Do(ctx context.Context, r Request) (Outcome, error) {
	op, err := d.mutation(r)
	if err != nil {
		return Outcome{}, err
	}
	d.acting.Lock()
	defer d.acting.Unlock()
	ctx = management.ForPerson(ctx)
	p, err := d.plan(ctx, op, r)
	if err != nil {
		return Outcome{}, err
	}
	if r.Seen != p.Seen {
		return Outcome{}, ErrChanged
	}
	a := newAction(r, d.host)
	// A crash before this line: nothing was recorded, and nothing done.
	if err := d.intend(ctx, a, p); err != nil {
		return Outcome{}, fmt.Errorf("record the intent (nothing was done): %w", err)
	}
	// A crash from here on: EndOpen ends the intent as unknown. The call goes on after
	// the person has gone, so the outcome is known.
	calling, cancel := context.WithTimeout(context.WithoutCancel(ctx), underWay/2)
	defer cancel()
	answer, err := op.do(calling, d.client, r)
	a.settle(answer.Receipt, err)
	out := Outcome{Action: a.Action, RequestID: a.RequestID, Status: a.Status, Result: answer.Raw}
	if err = errors.Join(err, d.end(ctx, a, answer.Raw)); err != nil {
		err = fmt.Errorf("the outcome of action %s is %q: %w", a.Action, a.Outcome, err)
	}
	return out, err
}

// mutation is the operation of r, if it changes something and may be done.
func (d *Desk) mutation(r Request) (Operation, error) {
	op, err := d.operation(r)
	if err == nil && op.do == nil {
		err = fmt.Errorf("%w: %s only reads", ErrUsage, r.Operation)
	}
	return op, err
}

// operation checks r.
func (d *Desk) operation(r Request) (Operation, error) {
	op, ok := operations[r.Operation]
	if !ok {
		return op, fmt.Errorf("%w: there is no operation %q", ErrUsage, r.Operation)
	}
	if err := op.check(r); err != nil {
		return op, fmt.Errorf("%w: %s: %w", ErrUsage, r.Operation, err)
	}
	if r.Operation == streamingSet && d.controls(r) {
		return op, fmt.Errorf("%w: this relay sets the streaming config of %s/%s itself: change `stream` in its configuration, or remove it there",
			ErrUsage, r.Project, r.Environment)
	}
	return op, nil
}

func (d *Desk) controls(r Request) bool {
	return slices.ContainsFunc(d.environments, func(e config.Environment) bool {
		return e.Project == r.Project && e.Environment == r.Environment && e.Stream != nil && !e.Stream.Observe && e.Mode != config.ModeObserve
	})
}
