package settings

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/auditrelay/auditrelay/internal/audit"
)

// typeRestated is the type of an entry that repeats what stands, as newer ones are damaged.
const typeRestated = "settings.restated"

// look reads one resource and enters what changed.
func (w *Watcher) look(ctx context.Context, g *group, x *watch) error {
	span := audit.Window{After: time.Now()}
	state, err := w.read(ctx, x.resource, g.watches[0].seen)
	span.Until = time.Now()
	if x.seen = err == nil; x.seen {
		state, err = w.enter(ctx, x, state, span)
	}
	if ctx.Err() != nil { // the round was called off, which says nothing of the resource
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

// failed keeps the old state, counts, and logs a failure that is new.
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

// enter compares state with the trail and appends what changed. It appends
// behind the entry that it compared with, or not at all: a crash before that
// leaves the change to be found by the next look, one behind it leaves nothing
// to do. Where another relay was quicker, or an entry given up for lost had
// arrived, the comparison is made again. It returns the state as the trail has
// it now: that of an older look where the two differ by order only.
func (w *Watcher) enter(ctx context.Context, x *watch, state json.RawMessage, span audit.Window) (json.RawMessage, error) {
	const attempts = 3
	var err error
	for range attempts {
		stands, e := w.compareAndAppend(ctx, x, state, span)
		if err = e; !errors.Is(err, audit.ErrConflict) {
			return stands, err
		}
	}
	return nil, err
}

func (w *Watcher) compareAndAppend(ctx context.Context, x *watch, state json.RawMessage, span audit.Window) (json.RawMessage, error) {
	r := x.resource
	last, found, err := w.trail.Last(ctx, r.Project, r.Environment, string(r.Kind))
	if err != nil {
		return nil, fmt.Errorf("read the trail: %w", err)
	}
	about := detail{Look: span, Unsure: last.Unsure}
	e := audit.Entry{
		Type: "settings.baseline", Project: r.Project, Environment: r.Environment, Subject: string(r.Kind),
		Time: span.Until, After: state, Detail: about.encode(),
	}
	if !found {
		return state, w.append(ctx, e, -1)
	}
	changes, err := Compare(r.Kind, last.After, state)
	if err != nil {
		return nil, fmt.Errorf("compare: %w", err)
	}
	if len(changes) == 0 && !last.Unsure {
		return last.After, nil
	}
	e.Type, e.Before, e.Detail = "settings.changed", last.After, about.with(changes).encode()
	if len(changes) == 0 {
		// A newer entry is damaged that may have been of this setting: a change there and
		// back would be lost with it. So what stands is entered once more, and says so.
		e.Type = typeRestated
	}
	e.Window = &audit.Window{After: w.lastAgreed(ctx, x, last), Until: span.Until}
	if e.Window.After.After(e.Window.Until) { // the clock was set back
		e.Window.After = e.Window.Until
	}
	return state, w.append(ctx, e, last.Index)
}

func (w *Watcher) append(ctx context.Context, e audit.Entry, newest int64) error {
	index, err := w.trail.AppendIf(ctx, e, newest)
	if err != nil {
		return fmt.Errorf("enter into the trail: %w", err)
	}
	r := Resource{Kind: Kind(e.Subject), Project: e.Project, Environment: e.Environment}
	w.log.Info("a setting entered the audit trail", append(attrs(r), "type", e.Type, "index", index)...)
	if e.Type == "settings.changed" {
		w.metrics.changed(r)
		w.note(r, func(s *Status) { s.Changes, s.LastChange = s.Changes+1, e.Time })
	}
	return nil
}

// lastAgreed is the latest moment at which the resource is known to have been
// as last says: this process's last look, else a check that attests the same
// state, else the look behind last itself.
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
	// Only a look that agreed with last counts; another relay's entry may be
	// younger than this process's last look.
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
