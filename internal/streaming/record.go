package streaming

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"

	"github.com/auditrelay/auditrelay/internal/audit"
)

// Subject is the resource that the room's audit entries are about.
const Subject = "event_log_streaming"

// The types of the room's audit entries.
const (
	// TypeBaseline is the first look at an environment that the trail has
	// nothing of.
	TypeBaseline = "streaming.baseline"
	// TypeChanged is a change of the config, its status included if that
	// changed too.
	TypeChanged = "streaming.changed"
	// TypeStatusChanged is a change of the streaming_status alone.
	TypeStatusChanged = "streaming.status_changed"
	// TypeRestated repeats what stands: a newer entry is damaged, and may have been of
	// this config.
	TypeRestated = "streaming.restated"
)

// Recorder is the audit trail.
type Recorder interface {
	// Last returns the newest entry of a resource, its Index set, and whether
	// there is one.
	Last(ctx context.Context, project, environment, subject string) (audit.Entry, bool, error)
	// AppendIf adds e and returns its index once it is durable, if the newest
	// entry of e's resource has the index newest (-1: there is none), and
	// audit.ErrConflict if not.
	AppendIf(ctx context.Context, e audit.Entry, newest int64) (int64, error)
}

// detail is what an entry says beside before and after.
type detail struct {
	// Cause is "relay" for what this relay set, "outside" for what it found.
	Cause string `json:"cause,omitempty"`
	// Reason is why the relay set it: the fields that differed, or "rotation".
	Reason []string `json:"reason,omitempty"`
	// Fields are the members that changed, as paths.
	Fields []string `json:"fields,omitempty"`
	// Unsure says that entries behind Before are damaged and may have been of this
	// config: there may have been changes between.
	Unsure bool `json:"unsure,omitempty"`
}

// record adds what was seen to the trail, if the trail's newest entry does not
// show it already. The trail itself is the memory of what was recorded, so
// that a crash between a change and its entry delays the entry and loses
// nothing, and that of several relays only one records a change.
func (w *watcher) record(ctx context.Context, o observation, d detail) error {
	for conflicts := 0; ; conflicts++ {
		last, found, err := w.recorder.Last(ctx, w.env.Project, w.env.Environment, Subject)
		if err != nil {
			return fmt.Errorf("read the trail: %w", err)
		}
		e, err := w.entry(last, found, o, d)
		if err != nil || e == nil {
			return err
		}
		newest := int64(-1)
		if found {
			newest = last.Index
		}
		_, err = w.recorder.AppendIf(ctx, *e, newest)
		if errors.Is(err, audit.ErrConflict) && conflicts < 5 {
			continue
		}
		if err != nil {
			return fmt.Errorf("record %s: %w", e.Type, err)
		}
		w.changed(e)
		return nil
	}
}

// entry is what there is to record, nil for nothing.
func (w *watcher) entry(last audit.Entry, found bool, o observation, d detail) (*audit.Entry, error) {
	e := &audit.Entry{
		Type: TypeBaseline, Project: w.env.Project, Environment: w.env.Environment,
		Subject: Subject, Time: o.at, After: o.raw,
	}
	d.Unsure = last.Unsure
	if found {
		same := bytes.Equal(last.After, o.raw)
		if same && !last.Unsure {
			return nil, nil //nolint:nilnil // nothing to record is no error
		}
		e.Before = last.After
		d.Fields = changedFields(last.After, o.raw)
		e.Type = TypeChanged
		switch {
		case same:
			e.Type, d.Cause, d.Reason = TypeRestated, "", nil
		case slices.Equal(d.Fields, []string{"streaming_status"}):
			e.Type, d.Cause, d.Reason = TypeStatusChanged, "", nil
		}
		e.Window = w.window(last, o)
	}
	var err error
	e.Detail, err = json.Marshal(d)
	return e, err
}

// window is when a change happened: after the last look that is known of, this
// relay's or that of the trail's newest entry.
func (w *watcher) window(last audit.Entry, o observation) *audit.Window {
	after := w.lastLook
	if last.Time.After(after) {
		after = last.Time
	}
	if after.After(o.at) {
		return nil // another relay's clock is ahead
	}
	return &audit.Window{After: after, Until: o.at}
}

// changedFields lists the members that differ, objects entered, by path.
func changedFields(before, after json.RawMessage) []string {
	return differences("", decode(before), decode(after))
}

// decode gives nil for no JSON.
func decode(raw json.RawMessage) any {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	var v any
	if dec.Decode(&v) != nil {
		return nil
	}
	return v
}

func differences(path string, a, b any) []string {
	am, aok := a.(map[string]any)
	bm, bok := b.(map[string]any)
	if !aok && !bok {
		if reflect.DeepEqual(a, b) {
			return nil
		}
		return []string{path}
	}
	names := maps.Clone(am)
	if names == nil {
		names = map[string]any{}
	}
	maps.Copy(names, bm)
	var all []string
	for _, name := range slices.Sorted(maps.Keys(names)) {
		sub := name
		if path != "" {
			sub = path + "." + name
		}
		all = append(all, differences(sub, am[name], bm[name])...)
	}
	return all
}
