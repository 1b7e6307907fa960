package settings

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/auditrelay/auditrelay/internal/workspace/kinds"
	"github.com/auditrelay/auditrelay/internal/workspace/management"
)

// proof is a read of the project that confirmed 404s of its resources. In the same round it is
// the look at the project, too.
type proof struct {
	answer management.Answer
	began  time.Time
}

// readEach reads a setting of a project that consists of several values, such as the default
// template of each type. Its state is an object from the value's name to the value, or to null
// where there is none. It is one state, so one unreadable value fails all of it.
func (w *Watcher) readEach(ctx context.Context, g *group, kind kinds.Setting) (got reading, err error) {
	values, absent := map[string]json.RawMessage{}, map[string]error{}
	for _, name := range kind.Each {
		a, err := w.fetch(ctx, g, kind, name)
		if management.IsNotFound(err) {
			values[name], absent[name] = json.RawMessage(null), err
			continue
		}
		if err == nil {
			values[name], err = value(kind, a.Raw)
		}
		if err != nil {
			return reading{}, fmt.Errorf("read %s: %w", name, err)
		}
		got.requests = append(got.requests, a.RequestID)
	}
	if err := w.confirmEach(ctx, g, kind, absent, &got); err != nil {
		return reading{}, err
	}
	if got.raw, err = json.Marshal(values); err != nil {
		return reading{}, fmt.Errorf("join the values of %s: %w", kind.Name, err)
	}
	return got, nil
}

// value checks one value; null is none.
func value(kind kinds.Setting, raw json.RawMessage) (json.RawMessage, error) {
	state, err := readState(raw)
	if err == nil && !state.None() {
		_, err = plausible(kind.Shape, state.Value)
	}
	return state.JSON, err
}

// confirmEach holds all 404s against one read of the project, made after them.
func (w *Watcher) confirmEach(ctx context.Context, g *group, kind kinds.Setting, absent map[string]error, got *reading) error {
	if len(absent) == 0 {
		return nil
	}
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(absent)) {
		errs = append(errs, absent[name])
		var api *management.APIError
		if errors.As(absent[name], &api) {
			got.requests = append(got.requests, api.RequestID)
		}
	}
	began := time.Now()
	project, err := w.options.Client.ConfirmAll(ctx, g.project, errs)
	if err != nil {
		return fmt.Errorf("read %s: %w", kind.Name, err)
	}
	got.requests = append(got.requests, project.RequestID)
	g.proof = &proof{project, began}
	return nil
}
