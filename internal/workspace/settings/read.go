package settings

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/auditrelay/auditrelay/internal/json/jsondiff"
	"github.com/auditrelay/auditrelay/internal/workspace/kinds"
	"github.com/auditrelay/auditrelay/internal/workspace/management"
)

// maxState bounds a state. Before and after of this size fit in a record of
// the trail, compressed; whether they fit in the store shows there.
const maxState = 15 << 20

// null is the state of a missing resource.
const null = "null"

// reading is the result of a look at a resource.
type reading struct {
	raw      json.RawMessage // as the API gave it; nil where it has none
	absent   bool            // the resource does not exist: its state is null
	requests []string        // the ids of its requests
	began    time.Time       // zero: now
	notes    []string        // what is assumed of the answer
}

// state decodes what was read, once for all that follow, if it is plausible.
func (r *reading) state(kind kinds.Setting) (jsondiff.State, error) {
	if r.absent {
		return jsondiff.State{JSON: json.RawMessage(null)}, nil
	}
	state, err := readState(r.raw)
	if err != nil || kind.Each != nil { // its values were judged one by one
		return state, err
	}
	notes, err := plausible(kind.Shape, state.Value)
	r.notes = append(r.notes, notes...)
	return state, err
}

func readState(raw json.RawMessage) (jsondiff.State, error) {
	if len(raw) > maxState {
		return jsondiff.State{}, fmt.Errorf("%w: %d bytes, the limit is %d", errImplausible, len(raw), maxState)
	}
	state, err := jsondiff.Read(raw)
	if err == nil && state.JSON == nil {
		err = errors.New("it is empty")
	}
	if err != nil {
		return jsondiff.State{}, fmt.Errorf("%w: %w", errImplausible, err)
	}
	return state, nil
}

// read reads a resource. It believes a 404 if [management.Client.Confirm] does.
func (w *Watcher) read(ctx context.Context, g *group, x *watch) (reading, error) {
	switch {
	case x.kind.Each != nil:
		return w.readEach(ctx, g, x.kind)
	case x.kind.Name == kinds.Project.Name && g.proof != nil:
		return reading{raw: g.proof.answer.Raw, requests: []string{g.proof.answer.RequestID}, began: g.proof.began}, nil
	}
	a, err := w.fetch(ctx, g, x.kind, "")
	if err != nil {
		return w.readAbsent(ctx, x.resource, err)
	}
	got := reading{raw: a.Raw, requests: []string{a.RequestID}}
	if a.Note != "" {
		got.notes = []string{a.Note}
	}
	return got, nil
}

// fetch reads a setting, or one of its values. An answer of another form than the document's is
// an answer as well: it is judged by [plausible].
func (w *Watcher) fetch(ctx context.Context, g *group, kind kinds.Setting, one string) (management.Answer, error) {
	a, err := w.options.Client.Setting(ctx, kind, g.project, g.environment, one)
	if a.Raw != nil {
		err = nil
	}
	return a, err
}

// readAbsent judges a failed read. Only a 404 says that a setting is gone: a success answer
// without it is not one of the API.
func (w *Watcher) readAbsent(ctx context.Context, r resource, err error) (reading, error) {
	if errors.Is(err, management.ErrNoResource) {
		return reading{}, fmt.Errorf("read: %w: %w", errImplausible, err)
	}
	if r.kind != kinds.Project.Name { // nothing can confirm the 404 of a project
		err = w.options.Client.Confirm(ctx, r.project, r.environment, err)
	}
	var a *management.Absence
	if !errors.As(err, &a) || a.WholeEnvironment {
		return reading{}, fmt.Errorf("read: %w", err)
	}
	return reading{absent: true, requests: []string{a.RequestID, a.ParentRequestID}}, nil
}
