package settings

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/auditrelay/auditrelay/internal/json/jsondiff"
	"github.com/auditrelay/auditrelay/internal/management"
)

// maxState bounds a state. Before and after of this size fit in a record of
// the trail, compressed; whether they fit in the server's messages shows there.
const maxState = 15 << 20

// null is the state of a resource that does not exist.
const null = "null"

// reading is the result of a look at a resource.
type reading struct {
	state    json.RawMessage // canonical and plausible, or null
	requests []string        // the ids of the requests behind it
}

// read gives a resource's state. Of a 404 it believes what [management.Client.Confirm]
// believes.
func (w *Watcher) read(ctx context.Context, r Resource) (reading, error) {
	if r.Kind == DefaultEmailTemplates {
		return w.readDefaults(ctx, r)
	}
	a, err := w.fetch(ctx, r)
	if err != nil {
		return w.readAbsent(ctx, r, err)
	}
	state, err := canonical(a.raw)
	if err != nil {
		return reading{}, err
	}
	return reading{state, []string{a.requestID}}, plausible(r.Kind, state)
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
	return reading{json.RawMessage(null), []string{a.RequestID, a.ParentRequestID}}, nil
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

// readDefaults reads the default template of each type: an object from type to template
// id, null where there is none. It is one state, so one unreadable type fails it whole.
func (w *Watcher) readDefaults(ctx context.Context, r Resource) (reading, error) {
	ids, absent := map[string]json.RawMessage{}, map[string]error{}
	var got reading
	for _, r.TemplateType = range templateTypes() {
		a, err := w.fetch(ctx, r)
		if management.IsNotFound(err) {
			absent[r.TemplateType] = err
			continue
		}
		if err != nil {
			return reading{}, fmt.Errorf("read %s: %w", r.TemplateType, err)
		}
		id, err := canonical(a.raw)
		if err != nil {
			return reading{}, fmt.Errorf("read %s: %w", r.TemplateType, err)
		}
		if !opens(id, '"') && string(id) != null {
			return reading{}, fmt.Errorf("read %s: %w: it is not a template's id", r.TemplateType, errImplausible)
		}
		ids[r.TemplateType] = id
		got.requests = append(got.requests, a.requestID)
	}
	if err := w.confirmDefaults(ctx, r.Project, absent, &got); err != nil {
		return reading{}, err
	}
	for kind := range absent {
		ids[kind] = json.RawMessage(null)
	}
	state, err := json.Marshal(ids)
	if err != nil {
		return reading{}, fmt.Errorf("join default templates: %w", err)
	}
	got.state, err = canonical(state)
	return got, err
}

// confirmDefaults holds all 404s against one read of the project, made after them.
func (w *Watcher) confirmDefaults(ctx context.Context, project string, absent map[string]error, got *reading) error {
	var parent string
	for _, kind := range slices.Sorted(maps.Keys(absent)) {
		err := absent[kind]
		if parent == "" {
			err = w.client.Confirm(ctx, project, "", err)
		} else {
			err = management.Beside(management.Receipt{RequestID: parent}, err)
		}
		var a *management.Absence
		if !errors.As(err, &a) {
			return fmt.Errorf("read %s: %w", kind, err)
		}
		parent = a.ParentRequestID
		got.requests = append(got.requests, a.RequestID)
	}
	if parent != "" {
		got.requests = append(got.requests, parent)
	}
	return nil
}
