package health

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"time"

	"github.com/auditrelay/auditrelay/internal/ingest/received"
	"github.com/auditrelay/auditrelay/internal/store/durable"
	"github.com/auditrelay/auditrelay/internal/workspace/management"
	"github.com/auditrelay/auditrelay/internal/workspace/streaming"
)

// FileName is the file in a data directory with each environment's
// rhythm, and its gaps. Without it, the relay learns it again.
const FileName = "rhythm.json"

// maxFile bounds the file, in bytes.
const maxFile = 64 << 20

// kept is the content of the file.
type kept struct {
	// Saved is when the relay was last known to run.
	Saved        time.Time               `json:"saved"`
	Environments map[string]*keptOfWatch `json:"environments"`
}

type keptOfWatch struct {
	LastPush time.Time                    `json:"last_push,omitzero"`
	LastNew  time.Time                    `json:"last_new,omitzero"`
	Declared keptStatus                   `json:"declared,omitzero"`
	Runs     map[string]received.Refusals `json:"refusals,omitempty"`
	// Gap is the open one; earlier versions kept one with an end here too.
	Gap       *Gap  `json:"gap,omitempty"`
	Unsettled []Gap `json:"gaps_unsettled,omitempty"`
	// Came counts the events that arrived since the first of both began.
	Came   int64           `json:"came,omitempty"`
	Gaps   []Gap           `json:"gaps,omitempty"`
	Due    []Gap           `json:"gaps_due,omitempty"`
	Recent recent          `json:"recent"`
	Skew   time.Duration   `json:"skew,omitempty"`
	Model  json.RawMessage `json:"model,omitempty"` // of internal/health/rhythm
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
	for _, w := range k.watches {
		kept := x.Environments[w.name.String()]
		if delete(x.Environments, w.name.String()); kept != nil {
			if err := w.take(kept, x.Saved); err != nil {
				k.log.Warn("the rhythm of an environment is learnt again", "project", w.name.Project, "environment", w.name.Environment, "error", err)
			}
		}
	}
	k.keepAbsent(x)
}

// keepAbsent keeps the gaps and rhythms of environments outside the configuration.
func (k *Keeper) keepAbsent(x *kept) {
	k.absent = map[string]*keptOfWatch{}
	for name, e := range x.Environments {
		if e == nil || len(k.absent) >= maxAbsent {
			continue
		}
		if e.Absent.IsZero() {
			e.Absent = x.Saved
		}
		if time.Since(e.Absent) < keptAbsent {
			k.absent[name] = e
		}
	}
}

func readFile(path string) (*kept, error) {
	f, err := durable.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // it was only read
	raw, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, err
	}
	if len(raw) > maxFile {
		return nil, fmt.Errorf("it has more than %d bytes", maxFile)
	}
	return parse(raw)
}

// parse reads the file's content, and bounds its lists.
func parse(raw []byte) (*kept, error) {
	x := &kept{}
	if err := json.Unmarshal(raw, x); err != nil {
		return nil, err
	}
	for _, e := range x.Environments {
		if e != nil {
			e.Recent.Events, e.Recent.Seconds = max(0, e.Recent.Events), max(0, e.Recent.Seconds)
			e.Came, e.Gaps, e.Due, e.Unsettled = max(0, e.Came), last(e.Gaps, maxGaps), last(e.Due, maxGaps), last(e.Unsettled, maxGaps)
		}
	}
	return x, nil
}

// take takes over the state of an earlier process. With an error, the rhythm is as new.
func (w *watch) take(x *keptOfWatch, saved time.Time) error {
	if !x.Absent.IsZero() { // nothing was due meanwhile
		x, saved = &keptOfWatch{Gaps: x.Gaps, Due: x.Due, Recent: x.Recent, Model: x.Model}, time.Time{}
	}
	w.lastPush, w.earlier, w.recent = x.LastPush, x.Runs, x.Recent
	if w.lastNew = x.LastNew; w.lastNew.IsZero() { // of an earlier version
		w.lastNew = w.lastPush
	}
	w.gaps.settled, w.gaps.due, w.gaps.came = x.Gaps, x.Due, x.Came
	w.seenUntil, w.before, w.skew = saved, x.Declared, x.Skew
	for _, g := range x.Unsettled {
		w.gaps.ended = append(w.gaps.ended, w.again(g))
	}
	switch g := x.Gap; {
	case g == nil:
	case g.Ended.IsZero():
		w.gaps.open = w.again(*g)
	default:
		w.gaps.ended = append(w.gaps.ended, w.again(*g))
	}
	if x.Model == nil {
		return nil
	}
	return json.Unmarshal(x.Model, w.model)
}

// again goes on with a gap of an earlier process.
func (w *watch) again(g Gap) *pending {
	return &pending{Gap: g, span: w.page.Count(g.Begun, g.Ended), late: g.EventsLate, refused: g.RefusedPushes}
}

// save writes the file, if a gap changed or its time has come. A crash leaves the old one or
// the new one: an older one lacks a minute's lesson, and the last arrivals come from the
// journal.
func (w *writer) save(now bool) error {
	k := w.keeper
	if k.options.File == "" {
		return nil
	}
	raw, due, err := k.encode(now || w.again || time.Since(w.saved) >= saveEvery)
	if err != nil || !due {
		return err
	}
	if err := durable.WriteFile(k.options.File, raw); err != nil {
		w.again = true
		return err
	}
	w.again = false
	w.saved = time.Now()
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
		if x.Environments[w.name.String()], err = w.keep(); err != nil {
			return nil, true, err
		}
	}
	raw, err = json.Marshal(x)
	return raw, true, err
}

func (w *watch) keep() (*keptOfWatch, error) {
	model, err := json.Marshal(w.model)
	if err != nil {
		return nil, err
	}
	x := &keptOfWatch{
		LastPush: w.lastPush, LastNew: w.lastNew, Runs: map[string]received.Refusals{}, Gaps: w.gaps.settled, Due: w.gaps.due,
		Recent: w.recent, Model: model, Declared: w.before, Came: w.came(), Skew: w.skew,
	}
	for _, p := range w.gaps.ended {
		x.Unsettled = append(x.Unsettled, p.Gap)
	}
	if p := w.gaps.open; p != nil {
		x.Gap = &p.Gap
	}
	if !w.declared.At.IsZero() {
		x.Declared = keptStatus{w.declared.Status, w.declared.StatusSince}
	}
	for reason, r := range w.runs {
		if r.Last.After(w.lastPush) {
			x.Runs[reason] = r
		}
	}
	return x, nil
}
