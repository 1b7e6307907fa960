package settings

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/auditrelay/auditrelay/internal/management"
)

// proof is a read of the project beside 404s of its resources. In the same round it is
// the look at the project, too.
type proof struct {
	answer answer
	began  time.Time
}

// readDefaults reads the default template of each type: an object from type to template
// id, null where there is none. It is one state, so one unreadable type fails it whole.
func (w *Watcher) readDefaults(ctx context.Context, g *group, r Resource) (reading, error) {
	ids, absent := map[string]json.RawMessage{}, map[string]error{}
	var got reading
	for _, r.TemplateType = range templateTypes() {
		a, err := w.fetch(ctx, r)
		if management.IsNotFound(err) {
			ids[r.TemplateType], absent[r.TemplateType] = json.RawMessage(null), err
			continue
		}
		if err == nil {
			ids[r.TemplateType], err = templateID(a.raw)
		}
		if err != nil {
			return reading{}, fmt.Errorf("read %s: %w", r.TemplateType, err)
		}
		got.requests = append(got.requests, a.requestID)
	}
	if err := w.confirmDefaults(ctx, g, absent, &got); err != nil {
		return reading{}, err
	}
	state, err := json.Marshal(ids)
	if err != nil {
		return reading{}, fmt.Errorf("join default templates: %w", err)
	}
	got.state, err = canonical(state)
	got.raw = got.state
	return got, err
}

// templateID checks the id of a default template.
func templateID(raw json.RawMessage) (json.RawMessage, error) {
	id, err := canonical(raw)
	if err == nil && !opens(id, '"') && string(id) != null {
		err = fmt.Errorf("%w: it is not a template's id", errImplausible)
	}
	return id, err
}

// confirmDefaults holds all 404s against one read of the project, made after them.
func (w *Watcher) confirmDefaults(ctx context.Context, g *group, absent map[string]error, got *reading) error {
	if len(absent) == 0 {
		return nil
	}
	var errs []error
	for _, kind := range slices.Sorted(maps.Keys(absent)) {
		errs = append(errs, absent[kind])
		var api *management.APIError
		if errors.As(absent[kind], &api) {
			got.requests = append(got.requests, api.RequestID)
		}
	}
	began := time.Now()
	project, err := w.client.ConfirmAll(ctx, g.project, errs)
	if err != nil {
		return fmt.Errorf("read default templates: %w", err)
	}
	got.requests = append(got.requests, project.RequestID)
	g.proof = &proof{answer{raw: project.Raw, requestID: project.RequestID}, began}
	return nil
}
