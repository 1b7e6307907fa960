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
	state    json.RawMessage // canonical and plausible, or null
	requests []string        // the ids of the requests behind it
	began    time.Time       // zero: now
}

// read returns a resource's state. It believes a 404 if [management.Client.Confirm] does.
func (w *Watcher) read(ctx context.Context, g *group, r Resource) (reading, error) {
	switch {
	case r.Kind == DefaultEmailTemplates:
		return w.readDefaults(ctx, g, r)
	case r.Kind == Project && g.proof != nil:
		return believe(r.Kind, g.proof.answer, g.proof.began)
	}
	a, err := w.fetch(ctx, r)
	if err != nil {
		return w.readAbsent(ctx, r, err)
	}
	return believe(r.Kind, a, time.Time{})
}

// believe makes an answer a reading, if it is plausible.
func believe(kind Kind, a answer, began time.Time) (reading, error) {
	state, err := canonical(a.raw)
	if err != nil {
		return reading{}, err
	}
	return reading{state, []string{a.requestID}, began}, plausible(kind, state)
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
