package workspace

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/auditrelay/auditrelay/internal/jsontext"
	"github.com/auditrelay/auditrelay/internal/plaintext"
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
func (r *reading) state(kind kinds.Setting) (jsontext.State, error) {
	if r.absent {
		return jsontext.State{JSON: json.RawMessage(null)}, nil
	}
	state, err := readState(r.raw)
	if err != nil || kind.Each != nil { // its values were judged one by one
		return state, err
	}
	notes, err := plausible(kind.Shape, state.Value)
	r.notes = append(r.notes, notes...)
	return state, err
}

func readState(raw json.RawMessage) (jsontext.State, error) {
	if len(raw) > maxState {
		return jsontext.State{}, fmt.Errorf("%w: %d bytes, the limit is %d", errImplausible, len(raw), maxState)
	}
	state, err := jsontext.Read(raw)
	if err == nil && state.JSON == nil {
		err = errors.New("it is empty")
	}
	if err != nil {
		return jsontext.State{}, fmt.Errorf("%w: %w", errImplausible, err)
	}
	return state, nil
}

// read reads a resource, and once more where an environment has come back between a 404 and the read
// that was to confirm it.
func (w *Watcher) read(ctx context.Context, g *group, x *watch) (reading, error) {
	got, err := w.readOnce(ctx, g, x)
	if errors.Is(err, management.ErrBack) {
		return w.readOnce(ctx, g, x)
	}
	return got, err
}

// readOnce reads a resource. It believes a 404 if [management.Client.Confirm] does.
func (w *Watcher) readOnce(ctx context.Context, g *group, x *watch) (reading, error) {
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
		if id := management.RequestOf(absent[name]); id != "" {
			got.requests = append(got.requests, id)
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

// errImplausible marks a success answer without the resource in it: a broken proxy or
// service must not look as if someone had emptied it.
var errImplausible = errors.New("implausible answer")

// plausible holds a decoded state against its kind's shape, and notes what it assumes.
//
// A list that is null or left out is an empty one: servers write it in either way, and a
// setting that counted as unread would be unwatched for as long as that lasts. But an
// answer without anything of the resource is implausible, and changes nothing: an empty
// object in place of a policy, null in place of an object, or a member of another form. A
// list that is the whole resource is judged by the client (management.Answer.Note).
func plausible(s kinds.Shape, state any) (notes []string, err error) {
	switch {
	case !opens(state, s.Opens):
		return nil, fmt.Errorf("%w: it is not %s", errImplausible, kinds.Called(s.Opens))
	case s.Opens == '[':
		return nil, elements(s, state)
	}
	members, _ := state.(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(s.Fields)) {
		if want := s.Fields[name]; !opens(members[name], want) {
			return nil, fmt.Errorf("%w: %s is not %s", errImplausible, name, kinds.Called(want))
		}
	}
	return lists(s, members)
}

// lists checks the members of an object that may be null or left out.
func lists(s kinds.Shape, members map[string]any) (notes []string, err error) {
	known, all := len(s.Lists) == 0, optional(s, members)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		v, ok := members[name]
		want, how, shown := all[name], "no ", plaintext.Line(name, maxNote) // a branded one is the API's
		switch {
		case v != nil && !opens(v, want):
			return nil, fmt.Errorf("%w: %s is not %s", errImplausible, shown, kinds.Called(want))
		case v != nil && slices.Contains(s.Lists, name):
			if err := elements(kinds.Shape{Elem: '{'}, v); err != nil {
				return nil, fmt.Errorf("%s: %w", shown, err)
			}
		case ok:
			how = "null for "
		}
		if known = known || ok; v == nil {
			notes = append(notes, "the API's answer had "+how+shown+": it is taken for an empty "+map[byte]string{'[': "list", '{': "object"}[want])
		}
	}
	if !known {
		return nil, fmt.Errorf("%w: it has nothing of what the document names", errImplausible)
	}
	slices.Sort(notes)
	return notes, nil
}

// maxNote bounds a name in a note or an error, in characters.
const maxNote = 80

// optional are how the JSON begins of the lists, and of the branded members that are there.
func optional(s kinds.Shape, members map[string]any) map[string]byte {
	all := map[string]byte{}
	for name := range members {
		for end, opens := range s.Branded {
			if strings.HasSuffix(name, end) {
				all[name] = opens
			}
		}
	}
	for _, name := range s.Lists {
		all[name] = '['
	}
	return all
}

func elements(s kinds.Shape, state any) error {
	list, _ := state.([]any)
	for i, element := range list {
		if !opens(element, s.Elem) {
			return fmt.Errorf("%w: element %d is not %s", errImplausible, i, kinds.Called(s.Elem))
		}
		if members, _ := element.(map[string]any); s.Key != "" && !opens(members[s.Key], '"') {
			return fmt.Errorf("%w: element %d has no %s", errImplausible, i, s.Key)
		}
	}
	return nil
}

// opens reports whether a value's JSON begins with a byte.
func opens(v any, with byte) bool {
	switch v.(type) {
	case map[string]any:
		return with == '{'
	case []any:
		return with == '['
	case string:
		return with == '"'
	}
	return false
}
