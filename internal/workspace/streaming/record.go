package streaming

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/auditrelay/auditrelay/internal/jsontext"
	"github.com/auditrelay/auditrelay/internal/trail/audit"
	"github.com/auditrelay/auditrelay/internal/workspace"
	"github.com/auditrelay/auditrelay/internal/workspace/management"
	"github.com/auditrelay/auditrelay/internal/workspace/meaning"
)

// The subjects of the room's audit entries.
const (
	// Subject is an environment's streaming config: the one of the desired destination
	// type, or else of the other.
	Subject = "event_log_streaming"
	// SubjectSecond is a config of the other type, if both types have one.
	SubjectSecond = "event_log_streaming_second"

	subjectReads  = "event_log_streaming_reads"
	subjectChecks = "event_log_streaming_checks"
)

// The types of the room's audit entries.
const (
	// TypeBaseline is the first look at an environment without any entry.
	TypeBaseline = "streaming.baseline"
	// TypeChanged is a change of the config, with or without its status.
	TypeChanged = "streaming.changed"
	// TypeStatusChanged is a change of the streaming_status alone.
	TypeStatusChanged = "streaming.status_changed"
	// TypeRestated repeats the state, because a newer entry is damaged and may have been about
	// this config.
	TypeRestated = "streaming.restated"
	// TypeFailed names the failing reads, and their causes.
	TypeFailed = "streaming.failed"
	// TypeRecovered means that all reads succeed again.
	TypeRecovered = "streaming.recovered"
	// TypeChecked attests the looks.
	TypeChecked = "streaming.checked"
)

// detail is the Detail of an entry.
type detail struct {
	workspace.Attribution
	// Reading is the meaning of the change: summary, direction, severity and statements. It is
	// nil without a change.
	*meaning.Reading
	// Reason tells why the relay set it: the fields with a difference, or "rotation".
	Reason []string `json:"reason,omitempty"`
	// Advice is for a person, about the state after.
	Advice string `json:"advice,omitempty"`
	// Fields are the paths of the changed members.
	Fields []string `json:"fields,omitempty"`
	// Unsure is set if entries after Before are damaged and may have been about this config, so
	// that there may have been changes between.
	Unsure bool `json:"unsure,omitempty"`
	// Requests are the ids of the reads of the configs before and after.
	Requests workspace.Requests `json:"request_ids,omitzero"`
}

// record adds an observation to the trail, unless the trail's newest entries show it already.
// The trail itself remembers the recorded changes: a crash between a change and its entry
// delays the entry and loses nothing.
func (w *watcher) record(ctx context.Context, o observation, d detail) error {
	if err := w.recordConfig(ctx, Subject, o.raw, o, d); err != nil || o.secondErr != nil {
		return err
	}
	return w.recordConfig(ctx, SubjectSecond, o.second, o, detail{Attribution: workspace.Outside()})
}

func (w *watcher) recordConfig(ctx context.Context, subject string, raw json.RawMessage, o observation, d detail) error {
	var told detail
	e, err := audit.Update(ctx, w.options.Recorder, w.env.Project, w.env.Environment, subject, func(last audit.Entry, found bool) (e *audit.Entry, err error) {
		if subject == SubjectSecond && !found && raw == nil {
			return nil, nil //nolint:nilnil // no second config, as ever, is nothing to record
		}
		if o.repeated && (!found || last.After != nil) { // the next look proves it again
			w.nowhere = false
			return nil, management.ErrUnproven
		}
		e, told, err = w.entry(ctx, last, found, subject, raw, o, d)
		return e, err
	})
	if err != nil {
		return fmt.Errorf("record the streaming config: %w", err)
	}
	if e != nil {
		w.changed(e, told)
	}
	return nil
}

// entry returns the entry to record with its detail, or nil if there is none.
func (w *watcher) entry(ctx context.Context, last audit.Entry, found bool, subject string, raw json.RawMessage, o observation, d detail) (*audit.Entry, detail, error) {
	e := &audit.Entry{
		Type: TypeBaseline, Project: w.env.Project, Environment: w.env.Environment,
		Subject: subject, Time: o.at, After: raw,
	}
	d.Unsure, d.Requests.After = last.Unsure, o.requests
	if !found && subject == SubjectSecond {
		// The environment was looked at before, or is looked at now for the first time; in
		// either case this config is new.
		e.Type = TypeChanged
		e.Window, d.Requests.Before = w.window(ctx, audit.Entry{Project: e.Project, Environment: e.Environment, Subject: subject}, o)
	}
	same := found && bytes.Equal(last.After, raw)
	if same && !last.Unsure {
		return nil, d, nil
	}
	changed, err := compare(subject, last.After, raw)
	if err != nil {
		return nil, d, err
	}
	if found {
		d.Fields = changedFields(changed.Changes)
		e.Before, e.Type = last.After, typeOf(same, d.Fields)
		e.Window, d.Requests.Before = w.window(ctx, last, o)
	}
	switch e.Type {
	case TypeBaseline, TypeRestated:
		d.Attribution, d.Reason = workspace.Attribution{}, nil
	case TypeStatusChanged: // a PUT asks for no status
		d.Attribution, d.Reason = workspace.Outside(), nil
	}
	by := attempt{Attribution: d.Attribution}
	if d.Cause != "" && d.Action == "" && e.Window != nil {
		found := workspace.Found{Entry: e, Changes: changed.Changes, Since: last.Time, Looked: o.began}
		if by, err = w.author(ctx, found, o.shape, d.Attribution); err != nil {
			return nil, d, err
		}
		d.Attribution = by.Attribution
	}
	if e.Type == TypeChanged || e.Type == TypeStatusChanged {
		if d.Reading, err = w.meaning(ctx, e, changed, by); err != nil {
			return nil, d, err
		}
	}
	e.Detail, err = json.Marshal(d)
	return e, d, err
}

// compare decodes two configs, once for all that follow.
func compare(subject string, before, after json.RawMessage) (meaning.Comparison, error) {
	a, err := jsontext.ReadCanonical(before)
	if err != nil {
		return meaning.Comparison{}, fmt.Errorf("compare with the trail: read the state before: %w", err)
	}
	b, err := jsontext.ReadCanonical(after)
	if err != nil {
		return meaning.Comparison{}, fmt.Errorf("compare with the trail: read the state after: %w", err)
	}
	return meaning.Compare(subject, a, b), nil
}

// meaning explains a change. If it cannot, it returns nil, and the entry is made without it.
func (w *watcher) meaning(ctx context.Context, e *audit.Entry, changed meaning.Comparison, by attempt) (*meaning.Reading, error) {
	var how meaning.How
	if by.Cause == workspace.CauseRelay && e.Subject == Subject {
		switch put, err := w.newestPut(ctx); {
		case err != nil:
			return nil, err
		case by.Restores, put.Restores && put.Action == by.Action:
			how = meaning.Restored
		}
	}
	reading, err := changed.Explain(how)
	if err != nil {
		w.metrics.unread.Inc()
		w.log.Error("the meaning of a change cannot be told; it is recorded without", "error", err)
		return nil, nil //nolint:nilnil // the entry goes in without it
	}
	return &reading, nil
}

// author says who made a change, by the trail: a PUT of a relay whose outcome this process does
// not know, or a person's action. Without one, the change stays as it was found.
func (w *watcher) author(ctx context.Context, f workspace.Found, shown *Shape, found workspace.Attribution) (attempt, error) {
	if f.Subject == Subject && f.Type == TypeChanged {
		if put, ok, err := w.putOf(ctx, shown, f); err != nil || ok {
			return put, err
		}
	}
	var err error
	if found.Cause != workspace.CauseRelay {
		found, err = workspace.Attribute(ctx, w.options.Recorder, f)
	}
	return attempt{Attribution: found}, err
}

func typeOf(same bool, fields []string) string {
	switch {
	case same:
		return TypeRestated
	case slices.Equal(fields, []string{"streaming_status"}):
		return TypeStatusChanged
	}
	return TypeChanged
}

// window is the time of a change, and the requests before it: after the last look that is known
// to agree with the trail's newest entry, by this process, by a check, or by the entry itself.
// It is nil if another relay's clock is ahead, or if nothing was seen before.
func (w *watcher) window(ctx context.Context, last audit.Entry, o observation) (*audit.Window, []string) {
	own := w.lastLook
	own.SHA256 = workspace.HashOf(last.After)
	was := workspace.LastAgreed(ctx, w.options.Recorder, subjectChecks, last, own)
	if was.At.After(o.at) || was.At.IsZero() {
		return nil, was.Requests
	}
	return &audit.Window{After: was.At, Until: o.at}, was.Requests
}

// changedFields lists the changed members, each as its path with dots.
func changedFields(changes jsontext.Changes) (fields []string) {
	for _, c := range changes.List {
		fields = append(fields, strings.ReplaceAll(strings.TrimPrefix(c.Path, "/"), "/", "."))
	}
	if changes.More > 0 {
		fields = append(fields, fmt.Sprintf("and %d more", changes.More))
	}
	return fields
}

// attested counts a recorded look.
func (w *watcher) attested(o observation) {
	w.checks.Saw(Subject, o.at, workspace.HashOf(o.raw), o.requests)
	if o.secondErr != nil {
		w.checks.Failed(SubjectSecond)
		return
	}
	w.checks.Saw(SubjectSecond, o.at, workspace.HashOf(o.second), o.requests)
}

// errTrail marks a failure of the trail: a relay that is cut off from its journal, or whose control
// another relay has taken over, cannot use it, whatever the API says.
var errTrail = errors.New("use the audit trail")

// trailLog marks the failures of the trail.
type trailLog struct{ audit.Log }

func ofTrail(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: %w", errTrail, err)
}

func (l trailLog) Last(ctx context.Context, project, environment, subject string) (audit.Entry, bool, error) {
	e, found, err := l.Log.Last(ctx, project, environment, subject)
	return e, found, ofTrail(err)
}

func (l trailLog) AppendIf(ctx context.Context, e audit.Entry, newest int64) (int64, error) { //nolint:gocritic // as the interface has it
	index, err := l.Log.AppendIf(ctx, e, newest)
	return index, ofTrail(err)
}

func (l trailLog) Get(ctx context.Context, index int64) (audit.Recorded, error) {
	r, err := l.Log.Get(ctx, index)
	return r, ofTrail(err)
}
