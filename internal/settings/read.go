package settings

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/auditrelay/auditrelay/internal/json/jsondiff"
)

// maxState bounds a state. Before and after of this size fit in a record of
// the trail, compressed; whether they fit in the server's messages shows there.
const maxState = 15 << 20

// read gives a resource's state, canonical and plausible.
func (w *Watcher) read(ctx context.Context, r Resource, projectSeen bool) (json.RawMessage, error) {
	if r.Kind == DefaultEmailTemplates {
		return w.readDefaults(ctx, r, projectSeen)
	}
	raw, err := w.reader.Read(ctx, r)
	if err != nil {
		return nil, fmt.Errorf("read: %w", err)
	}
	state, err := canonical(raw)
	if err != nil {
		return nil, err
	}
	return state, plausible(r.Kind, state)
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
func (w *Watcher) readDefaults(ctx context.Context, r Resource, projectSeen bool) (json.RawMessage, error) {
	ids := map[string]json.RawMessage{}
	for _, r.TemplateType = range templateTypes() {
		raw, err := w.reader.Read(ctx, r)
		switch {
		case errors.Is(err, ErrNotFound) && projectSeen:
			raw = json.RawMessage("null")
		case errors.Is(err, ErrNotFound):
			return nil, fmt.Errorf("read %s: the project could not be read, so this proves nothing: %w", r.TemplateType, err)
		case err != nil:
			return nil, fmt.Errorf("read %s: %w", r.TemplateType, err)
		}
		id, err := canonical(raw)
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", r.TemplateType, err)
		}
		if !opens(id, '"') && string(id) != "null" {
			return nil, fmt.Errorf("read %s: %w: it is not a template's id", r.TemplateType, errImplausible)
		}
		ids[r.TemplateType] = id
	}
	state, err := json.Marshal(ids)
	if err != nil {
		return nil, fmt.Errorf("join default templates: %w", err)
	}
	return canonical(state)
}
