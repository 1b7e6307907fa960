package settings

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/auditrelay/auditrelay/internal/json/jsondiff"
	"github.com/auditrelay/auditrelay/internal/management"
)

// maxState bounds a state. Before and after of this size fit in a record of
// the trail, compressed; whether they fit in the server's messages shows there.
const maxState = 15 << 20

// null is the state of a missing resource.
const null = "null"

// reading is the result of a look at a resource.
type reading struct {
	raw      json.RawMessage // as the API gave it; nil where it has none
	state    json.RawMessage // canonical and plausible, or null; nil: see stand
	requests []string        // the ids of the requests behind it
	began    time.Time       // zero: now
	notes    []string        // what is assumed of the answer
}

// stand makes the state, in canonical form, if it is plausible.
func (r *reading) stand(kind Kind) error {
	if r.state != nil {
		return nil
	}
	state, err := canonical(r.raw)
	if err != nil {
		return err
	}
	notes, err := plausible(kind, state)
	r.state, r.notes = state, append(r.notes, notes...)
	return err
}

// read returns a resource's state. It believes a 404 if [management.Client.Confirm] does.
func (w *Watcher) read(ctx context.Context, g *group, r Resource) (reading, error) {
	switch {
	case r.Kind == DefaultEmailTemplates:
		return w.readDefaults(ctx, g, r)
	case r.Kind == Project && g.proof != nil:
		return reading{raw: g.proof.answer.raw, requests: []string{g.proof.answer.requestID}, began: g.proof.began}, nil
	}
	a, err := w.fetch(ctx, r)
	if err != nil {
		return w.readAbsent(ctx, r, err)
	}
	got := reading{raw: a.raw, requests: []string{a.requestID}}
	if a.note != "" {
		got.notes = []string{a.note}
	}
	return got, nil
}

// readAbsent judges a failed read.
func (w *Watcher) readAbsent(ctx context.Context, r Resource, err error) (reading, error) {
	if r.Kind != Project { // nothing can confirm the 404 of a project
		err = w.client.Confirm(ctx, r.Project, r.Environment, err)
	}
	var a *management.Absence
	if !errors.As(err, &a) || a.WholeEnvironment {
		return reading{}, fmt.Errorf("read: %w", err)
	}
	return reading{state: json.RawMessage(null), requests: []string{a.RequestID, a.ParentRequestID}}, nil
}

func canonical(raw json.RawMessage) (json.RawMessage, error) {
	if len(raw) > maxState {
		return nil, fmt.Errorf("%w: %d bytes, the limit is %d", errImplausible, len(raw), maxState)
	}
	state, err := jsondiff.Canonical(raw)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errImplausible, err)
	}
	return state, nil
}
