package streaming

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/auditrelay/auditrelay/internal/audit"
	"github.com/auditrelay/auditrelay/internal/json/jsondiff"
)

// Subject is the resource of the room's audit entries.
const Subject = "event_log_streaming"

// The types of the room's audit entries.
const (
	// TypeBaseline is the first look at an environment without any entry.
	TypeBaseline = "streaming.baseline"
	// TypeChanged is a change of the config, with or without its status.
	TypeChanged = "streaming.changed"
	// TypeStatusChanged is a change of the streaming_status alone.
	TypeStatusChanged = "streaming.status_changed"
	// TypeRestated repeats the state: a newer entry is damaged, and may have been of
	// this config.
	TypeRestated = "streaming.restated"
)

// detail is the Detail of an entry.
type detail struct {
	// Cause is "relay" if this relay set it, "outside" if it found it so.
	Cause string `json:"cause,omitempty"`
	// Reason tells why the relay set it: the fields with a difference, or "rotation".
	Reason []string `json:"reason,omitempty"`
	// Fields are the paths of the changed members.
	Fields []string `json:"fields,omitempty"`
	// Unsure: entries behind Before are damaged and may have been of this config, so
	// there may have been changes between.
	Unsure bool `json:"unsure,omitempty"`
}

// record adds an observation to the trail, unless the trail's newest entry shows it
// already. The trail itself is the memory of recorded changes: a crash between a change
// and its entry delays the entry and loses nothing.
func (w *watcher) record(ctx context.Context, o observation, d detail) error {
	e, err := audit.Update(ctx, w.recorder, w.env.Project, w.env.Environment, Subject, func(last audit.Entry, found bool) (*audit.Entry, error) {
		return w.entry(last, found, o, d)
	})
	if err != nil {
		return fmt.Errorf("record the streaming config: %w", err)
	}
	if e != nil {
		w.changed(e)
	}
	return nil
}

// entry is the entry to record, nil for none.
func (w *watcher) entry(last audit.Entry, found bool, o observation, d detail) (*audit.Entry, error) {
	e := &audit.Entry{
		Type: TypeBaseline, Project: w.env.Project, Environment: w.env.Environment,
		Subject: Subject, Time: o.at, After: o.raw,
	}
	var err error
	d.Unsure = last.Unsure
	if found {
		same := bytes.Equal(last.After, o.raw)
		if same && !last.Unsure {
			return nil, nil //nolint:nilnil // nothing to record is no error
		}
		e.Before = last.After
		if d.Fields, err = changedFields(last.After, o.raw); err != nil {
			return nil, err
		}
		e.Type = TypeChanged
		switch {
		case same:
			e.Type, d.Cause, d.Reason = TypeRestated, "", nil
		case slices.Equal(d.Fields, []string{"streaming_status"}):
			e.Type, d.Cause, d.Reason = TypeStatusChanged, "", nil
		}
		e.Window = w.window(last, o)
	}
	e.Detail, err = json.Marshal(d)
	return e, err
}

// window is the time of a change: after the last known look, this relay's or the one of
// the trail's newest entry.
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

// changedFields lists the changed members, each as its path with dots.
func changedFields(before, after json.RawMessage) ([]string, error) {
	changes, err := jsondiff.Diff(nil, orEmpty(before), orEmpty(after))
	if err != nil {
		return nil, fmt.Errorf("compare with the trail: %w", err)
	}
	var fields []string
	for _, c := range changes {
		fields = append(fields, strings.ReplaceAll(strings.TrimPrefix(c.Path, "/"), "/", "."))
	}
	return fields, nil
}

// orEmpty is the state where there is no config: an object without members.
func orEmpty(state json.RawMessage) json.RawMessage {
	if len(state) == 0 {
		return json.RawMessage("{}")
	}
	return state
}
