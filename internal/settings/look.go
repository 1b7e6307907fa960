package settings

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"time"

	"github.com/auditrelay/auditrelay/internal/audit"
	"github.com/auditrelay/auditrelay/internal/json/jsondiff"
)

const (
	typeChanged = "settings.changed"
	// typeRestated marks an entry that repeats the state, since newer ones are damaged.
	typeRestated = "settings.restated"
)

// look reads one resource and enters its changes.
func (w *Watcher) look(ctx context.Context, g *group, x *watch) error {
	span := audit.Window{After: time.Now()}
	state, err := w.read(ctx, x.resource, g.watches[0].seen)
	span.Until = time.Now()
	if x.seen = err == nil; x.seen {
		state, err = w.enter(ctx, x, state, span)
	}
	if ctx.Err() != nil { // the round was called off, and the resource is not to blame
		return ctx.Err()
	}
	if err != nil {
		return w.failed(x, span.Until, err)
	}
	if x.failing {
		w.log.Info("a setting can be read again", attrs(x.resource)...)
	}
	x.failing = false
	x.lastLook, x.hash = span.After, hashOf(state)
	x.tally.add(span.After, span.Until)
	w.metrics.looked(x.resource, span.Until)
	w.note(x.resource, func(s *Status) { s.LastLook, s.Error = span.Until, "" })
	return nil
}

// failed keeps the old state, counts, and logs a new failure.
func (w *Watcher) failed(x *watch, at time.Time, err error) error {
	r := x.resource
	err = fmt.Errorf("look at %s of %s: %w", r.Kind, where(r), err)
	x.tally.failures++
	w.metrics.failed(r)
	if !x.failing {
		w.log.Warn("looking at a setting failed; its old state stands", append(attrs(r), "error", err)...)
	}
	x.failing = true
	w.note(r, func(s *Status) { s.LastFailure, s.Error = at, err.Error() })
	return err
}

// enter appends the changes since the trail's newest entry of the resource. It returns
// the state as the trail has it now: the one of an older look where the two differ by
// order only.
func (w *Watcher) enter(ctx context.Context, x *watch, state json.RawMessage, span audit.Window) (json.RawMessage, error) {
	r, stands := x.resource, state
	e, err := audit.Update(ctx, w.trail, r.Project, r.Environment, string(r.Kind), func(last audit.Entry, found bool) (*audit.Entry, error) {
		e, err := w.change(ctx, x, last, found, state, span)
		if stands = state; e == nil {
			stands = last.After
		}
		return e, err
	})
	if err != nil {
		return nil, fmt.Errorf("enter into the trail: %w", err)
	}
	if e != nil {
		w.entered(r, e)
	}
	return stands, nil
}

// change is the entry that is due after last, nil for none.
func (w *Watcher) change(ctx context.Context, x *watch, last audit.Entry, found bool, state json.RawMessage, span audit.Window) (*audit.Entry, error) {
	r, about := x.resource, detail{Look: span, Unsure: last.Unsure}
	e := &audit.Entry{
		Type: "settings.baseline", Project: r.Project, Environment: r.Environment, Subject: string(r.Kind),
		Time: span.Until, After: state, Detail: about.encode(),
	}
	if !found {
		return e, nil
	}
	changes, err := jsondiff.Diff(schemas[r.Kind], last.After, state)
	if err != nil {
		return nil, fmt.Errorf("compare: %w", err)
	}
	if len(changes) == 0 && !last.Unsure {
		return nil, nil //nolint:nilnil // no change is no error
	}
	e.Type, e.Before, e.Detail = typeChanged, last.After, about.with(changes).encode()
	if len(changes) == 0 {
		// A damaged newer entry may have been of this setting: with it, a change there and
		// back would be lost. So the state is entered once more, as restated.
		e.Type = typeRestated
	}
	e.Window = &audit.Window{After: w.lastAgreed(ctx, x, last), Until: span.Until}
	if e.Window.After.After(e.Window.Until) { // the clock was set back
		e.Window.After = e.Window.Until
	}
	return e, nil
}

func (w *Watcher) entered(r Resource, e *audit.Entry) {
	w.log.Info("a setting entered the audit trail", append(attrs(r), "type", e.Type, "index", e.Index)...)
	if e.Type == typeChanged {
		w.metrics.changed(r)
		w.note(r, func(s *Status) { s.Changes, s.LastChange = s.Changes+1, e.Time })
	}
}

// lastAgreed is the latest moment of certainty that the resource was as last says: this
// process's last look, else a check of the same state, else the look behind last
// itself.
func (w *Watcher) lastAgreed(ctx context.Context, x *watch, last audit.Entry) time.Time {
	at := lookOf(last)
	r := x.resource
	check, found, err := w.trail.Last(ctx, r.Project, r.Environment, checksSubject)
	if err == nil && found {
		c := checkOf(check).Resources[r.Kind]
		if c.SHA256 == hashOf(last.After) && c.LastLook.After(at) {
			at = c.LastLook
		}
	}
	// Only a look at the state of last counts; another relay's entry may be younger
	// than this process's last look.
	if x.hash == hashOf(last.After) && x.lastLook.After(at) {
		at = x.lastLook
	}
	return at
}

func hashOf(state json.RawMessage) string {
	sum := sha256.Sum256(state)
	return hex.EncodeToString(sum[:])
}

func where(r Resource) string {
	if r.Environment == "" {
		return r.Project
	}
	return r.Project + "/" + r.Environment
}

func attrs(r Resource) []any {
	return []any{"project", r.Project, "environment", r.Environment, "subject", string(r.Kind)}
}
