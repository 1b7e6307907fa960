package workspace

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"time"

	"github.com/auditrelay/auditrelay/internal/jsontext"
	"github.com/auditrelay/auditrelay/internal/trail/audit"
	"github.com/auditrelay/auditrelay/internal/workspace/meaning"
)

const (
	typeSettingBaseline = "settings.baseline"
	typeSettingChanged  = "settings.changed"
	// typeSettingGone marks an entry of a setting no longer in its environment.
	typeSettingGone = "settings.gone"
	// typeSettingRestated marks an entry with the state once more, because newer ones are
	// damaged.
	typeSettingRestated = "settings.restated"
)

// look reads one resource and enters its changes.
func (w *Watcher) look(ctx context.Context, g *group, x *watch) error {
	span := audit.Window{After: time.Now()}
	got, err := w.read(ctx, g, x)
	span.Until = time.Now()
	if !got.began.IsZero() {
		span.After = got.began
	}
	now := agreed{Agreed{At: span.After, Requests: got.requests, SHA256: x.agreed.SHA256}, sha256.Sum256(got.raw), g.end, x.agreed.compared}
	if err == nil && !x.agreed.standsFor(now) {
		now.compared = span.Until
		now.SHA256, err = w.compare(ctx, x, got, span)
	}
	if ctx.Err() != nil { // the round was called off, and the resource is not to blame
		return ctx.Err()
	}
	if err != nil {
		return w.failed(g, x, span.Until, err)
	}
	x.agreed = now
	g.checks.Saw(x.resource.kind, span.After, x.agreed.SHA256, x.agreed.Requests)
	w.note(x.resource, func(s *SettingStatus) { s.looks, s.LastLook, s.Error = s.looks+1, span.Until, "" })
	return nil
}

// failed counts a failure. The old state stands.
func (w *Watcher) failed(g *group, x *watch, at time.Time, err error) error {
	r := x.resource
	err = fmt.Errorf("look at %s of %s: %w", r.kind, where(r), err)
	g.checks.Failed(r.kind)
	w.note(r, func(s *SettingStatus) { s.failures, s.LastFailure, s.Error = s.failures+1, at, err.Error() })
	return err
}

// compare enters the changes, and returns the hash of the state as the trail has it now.
func (w *Watcher) compare(ctx context.Context, x *watch, got reading, span audit.Window) (hash string, err error) {
	state, err := got.state(x.kind)
	if err != nil {
		return "", err
	}
	stands, err := w.enter(ctx, finding{watch: x, reading: got, now: state, span: span})
	return jsontext.Hash(stands), err
}

// finding is a look that is to be compared with the trail.
type finding struct {
	*watch
	reading
	now  jsontext.State // what was read
	span audit.Window   // of the look
}

// enter appends the changes since the trail's newest entry of the resource. It returns
// the state as the trail has it now: the one of an older look where the two differ by
// order only.
func (w *Watcher) enter(ctx context.Context, f finding) (json.RawMessage, error) {
	r, stands := f.resource, f.now.JSON
	var about detail
	e, err := audit.Update(ctx, w.options.Trail, r.project, r.environment, r.kind, func(last audit.Entry, found bool) (e *audit.Entry, err error) {
		e, about, err = w.change(ctx, f, last, found)
		if stands = f.now.JSON; e == nil {
			stands = last.After
		}
		return e, err
	})
	if err != nil {
		return nil, inTrail(err)
	}
	if e != nil {
		w.entered(r, e, about)
	}
	return stands, nil
}

// change is the entry due after last, with its detail; nil for none.
func (w *Watcher) change(ctx context.Context, f finding, last audit.Entry, found bool) (*audit.Entry, detail, error) {
	about := detail{Look: f.span, Unsure: last.Unsure, Notes: f.notes, Requests: Requests{After: f.requests}}
	e := &audit.Entry{
		Type: typeSettingBaseline, Project: f.resource.project, Environment: f.resource.environment, Subject: f.resource.kind,
		Time: f.span.Until, After: f.now.JSON,
	}
	if found {
		before, err := jsontext.ReadCanonical(last.After)
		if err != nil {
			return nil, about, fmt.Errorf("compare: read the state before: %w", err)
		}
		changed := meaning.Compare(f.resource.kind, before, f.now)
		if len(changed.Changes.List) == 0 && !last.Unsure {
			return nil, about, nil
		}
		if about, err = w.changed(ctx, f, e, last, changed, about); err != nil {
			return nil, about, err
		}
	}
	e.Detail = jsontext.Encode(about)
	return e, about, nil
}

// changed completes the entry of a change, and returns its detail.
func (w *Watcher) changed(ctx context.Context, f finding, e *audit.Entry, last audit.Entry, changed meaning.Comparison, about detail) (_ detail, err error) {
	before := LastAgreed(ctx, w.options.Trail, checksSubject, last, f.agreed.Agreed)
	about.Requests.Before = before.Requests
	e.Window = &audit.Window{After: before.At, Until: f.span.Until}
	if e.Window.After.After(e.Window.Until) { // the clock was set back
		e.Window.After = e.Window.Until
	}
	e.Before = last.After
	if e.Type = typeOf(changed.Changes, f.now.JSON); e.Type != typeSettingRestated {
		found := Found{Entry: e, Changes: changed.Changes, Since: last.Time, Looked: f.span.After}
		if about.Attribution, err = Attribute(ctx, w.options.Trail, found); err != nil {
			return about, err
		}
		about.Reading = w.meaning(f, last, changed)
	}
	return about.with(changed.Changes), nil
}

func typeOf(changes jsontext.Changes, state json.RawMessage) string {
	switch {
	case len(changes.List) == 0:
		// A damaged newer entry may have been of this setting. Without a new entry, a
		// change there and back would be lost.
		return typeSettingRestated
	case string(state) == null:
		return typeSettingGone
	}
	return typeSettingChanged
}

// meaning explains a change. If it cannot, it returns nil, and the entry goes in without
// it.
func (w *Watcher) meaning(f finding, last audit.Entry, changed meaning.Comparison) *meaning.Reading {
	var how meaning.How
	var err error
	if string(last.After) == null && len(last.Before) > 0 { // back again: a weaker setting must not pass as new
		var before jsontext.State
		if before, err = jsontext.ReadCanonical(last.Before); err == nil {
			changed, how = meaning.Compare(f.resource.kind, before, f.now), meaning.Returned
		}
	}
	var reading meaning.Reading
	if err == nil {
		reading, err = changed.Explain(how)
	}
	if err != nil {
		w.note(f.resource, func(s *SettingStatus) { s.unread++ })
		w.options.Logger.Error("the meaning of a change cannot be told; it is recorded without", append(attrs(f.resource), "error", err)...)
		return nil
	}
	return &reading
}

func (w *Watcher) entered(r resource, e *audit.Entry, d detail) {
	about := append(attrs(r), "type", e.Type, "index", e.Index)
	if d.Reading != nil {
		w.options.Logger.Info("a setting changed: "+d.Summary, append(about, "direction", d.Direction, "severity", d.Severity)...)
	} else {
		w.options.Logger.Info("a setting entered the audit trail", about...)
	}
	if e.Type == typeSettingChanged || e.Type == typeSettingGone {
		w.note(r, func(s *SettingStatus) { s.Changes, s.LastChange = s.Changes+1, e.Time })
	}
}

// agreed is a look in agreement with the trail.
type agreed struct {
	Agreed
	raw      [sha256.Size]byte // of the API's answer
	end      int64             // of the trail, before the look; -1: unknown
	compared time.Time         // the last comparison with the trail
}

// compareEvery is the longest time without a comparison. It bounds the harm of a trail
// put back, and grown to the same length again within one interval.
const compareEvery = time.Hour

// standsFor reports whether a look has nothing to enter: the API's answer is as it was, to
// the byte, and nobody has added to the trail. So the newest entry is as it was too.
func (a agreed) standsFor(now agreed) bool {
	return a.raw == now.raw && a.end == now.end && now.end >= 0 && now.At.Sub(a.compared) < compareEvery
}

func where(r resource) string {
	if r.environment == "" {
		return r.project
	}
	return r.project + "/" + r.environment
}

func attrs(r resource) []any {
	return []any{"project", r.project, "environment", r.environment, "subject", r.kind}
}

const (
	maxChanges = 500 // listed in one entry
	maxShown   = 512 // bytes of a value shown in a change
)

// detail is the Detail of an entry about a setting's state.
type detail struct {
	Attribution
	// Reading is the meaning of the change: summary, direction, severity and statements. It is
	// nil without a change.
	*meaning.Reading
	// Changes are for reading: long values are cut, since before and after
	// have them whole. Omitted counts those beyond 500.
	Changes []jsontext.Change `json:"changes,omitempty"`
	Omitted int               `json:"omitted,omitempty"`
	// Unsure: entries after Before are damaged and may have been of this setting, so
	// there may have been changes between.
	Unsure bool `json:"unsure,omitempty"`
	// Notes say what the relay assumed of the API's answer: see [plausible].
	Notes []string `json:"notes,omitempty"`
	// Look is when the look began and ended.
	Look audit.Window `json:"look"`
	// Requests are the ids of the reads of the states before and after.
	Requests Requests `json:"request_ids,omitzero"`
}

func (d detail) with(changes jsontext.Changes) detail {
	listed := min(len(changes.List), maxChanges)
	d.Omitted = len(changes.List) - listed + changes.More
	for _, c := range changes.List[:listed] {
		d.Changes = append(d.Changes, jsontext.Change{Path: c.Path, Old: jsontext.Shorten(c.Old, maxShown), New: jsontext.Shorten(c.New, maxShown)})
	}
	return d
}
