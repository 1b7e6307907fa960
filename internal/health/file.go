package health

import (
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"slices"
	"time"

	"github.com/auditrelay/auditrelay/internal/ingest/received"
	"github.com/auditrelay/auditrelay/internal/store/durable"
	"github.com/auditrelay/auditrelay/internal/workspace/management"
	"github.com/auditrelay/auditrelay/internal/workspace/streaming"
)

// FileName is the file in a data directory with each environment's
// rhythm, and its gaps. Without it, the relay learns it again.
const FileName = "rhythm.json"

// kept is the content of the file.
type kept struct {
	// Saved is when the relay was last known to run.
	Saved        time.Time               `json:"saved"`
	Environments map[string]*keptOfWatch `json:"environments"`
}

// memory is what the file keeps of a watched environment.
type memory struct {
	// Word is the API's word in an earlier run, and Earlier are the runs of refusals that earlier
	// processes saw.
	Word    keptStatus                   `json:"declared,omitzero"`
	Earlier map[string]received.Refusals `json:"refusals,omitempty"`
	gaps
	Recent recent `json:"recent"`
}

type keptOfWatch struct {
	Seen
	memory
	Model json.RawMessage `json:"model,omitempty"` // a [Rhythm]
	// Absent is since when it is not in the configuration; zero: it is.
	Absent time.Time `json:"absent,omitzero"`
}

// An environment gone from the configuration is kept, in case it comes back: within the
// weeks of a rhythm, and so many of them.
const (
	keptAbsent = 5 * 7 * 24 * time.Hour
	maxAbsent  = 500
)

// keptStatus is the API's word, since when.
type keptStatus struct {
	Status management.StreamingStatus `json:"status"`
	Since  time.Time                  `json:"since"`
}

func (k *keptStatus) is(h streaming.Health) bool { return !k.Since.IsZero() && k.Status == h.Status }

// load takes over the file.
func (k *Keeper) load() {
	if k.options.File == "" {
		return
	}
	x, err := readFile(k.options.File)
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	if err != nil {
		k.log.Warn("the environments' learnt rhythms cannot be read; they are learnt again", "file", k.options.File, "error", err)
		return
	}
	k.absent = x.Environments
	for _, w := range k.watches {
		k.recall(w, x.Saved)
	}
	for name, e := range k.absent {
		if e != nil && e.Absent.IsZero() {
			e.Absent = x.Saved
		}
		if e == nil || len(k.absent) > maxAbsent || time.Since(e.Absent) >= keptAbsent {
			delete(k.absent, name)
		}
	}
}

// recall takes over what is known of an environment from the time before it came into the
// configuration.
func (k *Keeper) recall(w *watch, saved time.Time) {
	kept := k.absent[w.Environment.String()]
	if delete(k.absent, w.Environment.String()); kept == nil {
		return
	}
	if err := w.take(kept, saved); err != nil {
		k.log.Warn("the rhythm of an environment is learnt again", "project", w.Environment.Project, "environment", w.Environment.Environment, "error", err)
	}
}

func readFile(path string) (*kept, error) {
	raw, err := durable.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return parse(raw)
}

// parse reads the file's content, and bounds its lists.
func parse(raw []byte) (*kept, error) {
	x := &kept{}
	if err := json.Unmarshal(raw, x); err != nil {
		return nil, err
	}
	if x.Environments == nil {
		x.Environments = map[string]*keptOfWatch{}
	}
	for _, e := range x.Environments {
		if e != nil {
			e.Recent.Events, e.Recent.Seconds = max(0, e.Recent.Events), max(0, e.Recent.Seconds)
			e.Came, e.Settled, e.Due = max(0, e.Came), last(e.Settled, maxGaps), last(e.Due, maxGaps)
			e.Past = last(slices.DeleteFunc(e.Past, func(p *pending) bool { return p == nil }), maxGaps)
		}
	}
	return x, nil
}

// take takes over the state of an earlier process. With an error, the rhythm is as new.
func (w *watch) take(x *keptOfWatch, saved time.Time) error {
	if !x.Absent.IsZero() { // nothing was due meanwhile
		x.Seen, saved = Seen{}, time.Time{}
		x.memory = memory{gaps: gaps{Settled: x.Settled, Due: x.Due}, Recent: x.Recent}
	}
	w.Seen, w.memory, w.seenUntil = x.Seen, x.memory, saved
	for _, p := range w.unsettled() {
		p.span, p.late, p.refused = w.page.Count(p.Begun, p.Ended), p.EventsLate, p.RefusedPushes
	}
	if x.Model == nil {
		return nil
	}
	return json.Unmarshal(x.Model, w.Model)
}

// save writes the file, if a gap changed or its time has come. A crash leaves the old one or
// the new one: an older one lacks a minute's lesson, and the last arrivals come from the
// journal.
func (w *writer) save(now bool) error {
	k := w.keeper
	if k.options.File == "" {
		return nil
	}
	raw, due, err := k.encode(now || time.Since(w.saved) >= saveEvery)
	if err != nil || !due {
		return err
	}
	w.saved = time.Now()
	if err := durable.WriteFile(k.options.File, raw); err != nil {
		w.saved = time.Time{} // it is due at once
		return err
	}
	return nil
}

func (k *Keeper) encode(now bool) (raw []byte, due bool, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	x := kept{Saved: time.Now(), Environments: map[string]*keptOfWatch{}}
	maps.Copy(x.Environments, k.absent)
	for _, w := range k.watches {
		now, w.changed = now || w.changed, false
	}
	if !now {
		return nil, false, nil
	}
	for _, w := range k.watches {
		if x.Environments[w.Environment.String()], err = w.keep(); err != nil {
			return nil, true, err
		}
	}
	raw, err = json.Marshal(x)
	return raw, true, err
}

func (w *watch) keep() (*keptOfWatch, error) {
	model, err := json.Marshal(w.Model)
	if err != nil {
		return nil, err
	}
	x := &keptOfWatch{Seen: w.Seen, memory: w.memory, Model: model}
	x.Came, x.Earlier = w.came(), map[string]received.Refusals{}
	if !w.Declared.LastLook.IsZero() {
		x.Word = keptStatus{w.Declared.Status, w.Declared.StatusSince}
	}
	for reason, r := range w.Runs {
		if r.Last.After(w.LastPush) {
			x.Earlier[reason] = r
		}
	}
	return x, nil
}
