package timeline

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/auditrelay/auditrelay/internal/jsontext"
	"github.com/auditrelay/auditrelay/internal/trail/audit"
)

// Where names a setting. An empty project or environment stands for the only one with
// this setting.
type Where struct {
	Project     string `json:"project,omitempty"`
	Environment string `json:"environment,omitempty"`
	Setting     string `json:"setting"`
}

func (w Where) String() string {
	if of := strings.Trim(w.Project+"/"+w.Environment, "/"); of != "" {
		return w.Setting + " of " + of
	}
	return w.Setting
}

// Setting is one with states in the trail.
type Setting struct {
	Where
	States  int `json:"states"`  // entries with a state of it
	Changes int `json:"changes"` // recorded by them
	// Last is its newest entry.
	Last Row `json:"last"`
}

// State is a setting at a time, as the trail knows it.
type State struct {
	Where
	At time.Time `json:"at"`
	// Known: there is an entry of this time or before. Otherwise only Next says something.
	Known bool `json:"known"`
	// Value is nil where the setting was not there.
	Value json.RawMessage `json:"value,omitempty"`
	// Entry shows Value, and has the time it was recorded. Seen is the begin of the latest
	// look known to have found it so; Entry's time if none has since.
	Entry Row       `json:"entry,omitzero"`
	Seen  time.Time `json:"seen,omitzero"`
	// Uncertain: At lies in the window of Next: the setting was Value or Next.Value.
	Uncertain bool  `json:"uncertain"`
	Next      *Next `json:"next,omitempty"`
	// Notes are for a person: damaged entries.
	Notes []string `json:"notes,omitempty"`
}

// Next is the state after a State.
type Next struct {
	Entry Row `json:"entry"`
	// Window is when the setting became so. Nil: not known.
	Window *audit.Window   `json:"window,omitempty"`
	Value  json.RawMessage `json:"value,omitempty"`
}

var (
	// ErrSetting marks a setting that is not in the trail.
	ErrSetting = errors.New("no such setting")
	// ErrSeveral marks a name that several settings have.
	ErrSeveral = errors.New("several settings have this name")
)

// Settings lists those chosen by f, by project, environment and name; with a limit the first ones. An
// end of f gives them as they were at that time.
func (x *Index) Settings(ctx context.Context, f Filter) ([]Setting, error) {
	r, err := x.read(ctx)
	if err != nil {
		return nil, err
	}
	list := r.settings(f)
	if f.Limit > 0 {
		list = list[:min(len(list), f.Limit)]
	}
	for i := range list {
		if list[i].Last, err = r.row(list[i].Last.Index); err != nil {
			return nil, err
		}
	}
	return list, ctx.Err()
}

func (r *reading) settings(f Filter) (list []Setting) {
	f.States = true
	m := f.matcher(&r.table)
	places := map[[3]uint16]int{} // by the names
	for index := range m.down {
		row := r.table.at(index)
		key := [...]uint16{row.Names[ofProject], row.Names[ofEnvironment], row.Names[ofSubject]}
		i, known := places[key]
		if !known {
			i = len(list)
			places[key] = i
			list = append(list, Setting{Last: Row{Index: index}})
		}
		list[i].States++
		if row.Flags&needsReview != 0 {
			list[i].Changes++
		}
	}
	for i := range list {
		s := &list[i]
		s.Last = r.table.show(s.Last.Index)
		s.Where = Where{s.Last.Project, s.Last.Environment, s.Last.Setting}
	}
	slices.SortFunc(list, func(a, b Setting) int {
		return cmp.Or(strings.Compare(a.Project, b.Project), strings.Compare(a.Environment, b.Environment), strings.Compare(a.Setting, b.Setting))
	})
	return list
}

// At gives the state of a setting at a time. A damaged entry is passed over, with a note.
func (x *Index) At(ctx context.Context, w Where, at time.Time) (State, error) {
	r, err := x.read(ctx)
	if err != nil {
		return State{}, err
	}
	if w, err = r.resolve(w); err != nil {
		return State{}, err
	}
	s := State{Where: w, At: at}
	states := r.states(w)
	// The trail's order decides, not the clock: the newest entry made at this time or
	// before.
	next := len(states)
	for next > 0 && r.table.at(states[next-1]).Time > nanos(at) {
		next--
	}
	if err := x.stateBefore(ctx, r, &s, states[:next]); err != nil {
		return State{}, err
	}
	r.noteGone(&s)
	if next < len(states) {
		return s, x.stateAfter(ctx, r, &s, states[next])
	}
	return s, x.confirm(ctx, r, &s)
}

// states are the entries with a state of w.
func (r *reading) states(w Where) (list []int64) {
	subject := r.id(w.Setting)
	for index, row := range r.down(w) {
		if row.Flags&isState != 0 && int(row.Names[ofSubject]) == subject {
			list = append(list, index)
		}
	}
	slices.Reverse(list)
	return list
}

// down yields the readable rows about the project and the environment of w, the newest first.
func (r *reading) down(w Where) iter.Seq2[int64, *row] {
	project, environment := r.id(w.Project), r.id(w.Environment)
	return func(yield func(int64, *row) bool) {
		for index := r.table.n - 1; index >= 0; index-- {
			row := r.table.at(index)
			ofBoth := row.Flags&isMissing == 0 && int(row.Names[ofProject]) == project && int(row.Names[ofEnvironment]) == environment
			if ofBoth && !yield(index, row) {
				return
			}
		}
	}
}

// id is the place of a name, -1 for an unknown one.
func (r *reading) id(name string) int { return slices.Index(r.table.names, name) }

// resolve finds the setting named by w.
func (r *reading) resolve(w Where) (Where, error) {
	f := Filter{Setting: w.Setting, Project: w.Project, Environment: w.Environment}
	all := r.settings(f)
	switch len(all) {
	case 0:
		return w, fmt.Errorf("%w: the trail has no state of %s; 'auditrelay settings list' lists those with one", ErrSetting, w)
	case 1:
		return all[0].Where, nil
	}
	var names []string
	for _, s := range all[:min(len(all), 5)] {
		names = append(names, s.String())
	}
	return w, fmt.Errorf("%w, %d of them (%s …): name one by --project and --environment", ErrSeveral, len(all), strings.Join(names, ", "))
}

// unreadable reports whether an entry is lost or damaged.
func unreadable(err error) bool {
	return errors.Is(err, audit.ErrMissing) || errors.Is(err, audit.ErrDamaged)
}

// stateBefore fills in the newest sound state.
func (x *Index) stateBefore(ctx context.Context, r *reading, s *State, states []int64) error {
	for _, index := range slices.Backward(states) {
		e, err := x.trail.Get(ctx, index)
		if err != nil && !unreadable(err) {
			return err
		}
		if err != nil || e.Unsound {
			s.Notes = append(s.Notes, fmt.Sprintf("entry %d is damaged or lost, and is passed over; 'auditrelay journal verify' says more", index))
			continue
		}
		s.Known, s.Value, s.Seen = true, e.After, e.Time
		s.Entry, err = r.row(index)
		return err
	}
	return nil
}

// The subject and the type of internal/workspace's entries about an environment gone from the
// API.
const (
	environmentSubject = "environment"
	environmentGone    = "environment.gone"
)

// noteGone says so if the environment was gone at the time. Its settings have no entries
// of their own for it.
func (r *reading) noteGone(s *State) {
	if s.Environment == "" {
		return
	}
	subject, at := r.id(environmentSubject), nanos(s.At)
	for index, row := range r.down(s.Where) {
		if int(row.Names[ofSubject]) != subject || row.Time > at {
			continue
		}
		if r.table.names[row.Names[ofKind]] == environmentGone {
			s.Notes = append(s.Notes, fmt.Sprintf("the environment was gone at that time, as entry %d says: this is its last known state", index))
		}
		return
	}
}

// stateAfter fills in the next state, and whether it may have stood already.
func (x *Index) stateAfter(ctx context.Context, r *reading, s *State, index int64) error {
	e, err := x.trail.Get(ctx, index)
	if unreadable(err) || err == nil && e.Unsound {
		s.Notes = append(s.Notes, fmt.Sprintf("entry %d, the next one, is damaged or lost: how long this state stood is not known", index))
		return nil
	}
	if err != nil {
		return err
	}
	s.Next = &Next{Window: e.Window, Value: e.After}
	if s.Next.Entry, err = r.row(index); err != nil || !s.Known {
		return err
	}
	if e.Window != nil && e.Window.After.After(s.Seen) {
		s.Seen = e.Window.After
	}
	s.Uncertain = s.At.After(s.Seen) && !s.At.After(e.Time)
	return nil
}

// checkSubjects are the subjects of the attestations by internal/workspace and
// internal/workspace/streaming of looks without a change.
var checkSubjects = []string{"settings_checks", "event_log_streaming_checks"}

// confirm looks for the newest look that saw the newest state: the running relay's, or
// one attested by now, perhaps by another relay.
func (x *Index) confirm(ctx context.Context, r *reading, s *State) error {
	if !s.Known {
		return nil
	}
	if x.looked != nil {
		s.seenBy(x.looked(s.Where))
	}
	for index, row := range r.down(s.Where) {
		if index <= s.Entry.Index {
			break
		}
		if !slices.Contains(checkSubjects, r.table.names[row.Names[ofSubject]]) {
			continue
		}
		e, err := x.trail.Get(ctx, index)
		if err != nil && !unreadable(err) {
			return err
		}
		// An older one may still say something where this one is damaged, or where the looks
		// at this setting failed.
		if err == nil && !e.Unsound && s.attestedBy(e.Detail) {
			return nil
		}
	}
	return nil
}

// attestedBy takes in the last look of an attestation, and reports whether it was at this
// state.
func (s *State) attestedBy(detail json.RawMessage) bool {
	var check struct {
		Resources map[string]struct {
			LastLook time.Time `json:"last_look"`
			SHA256   string    `json:"sha256"`
		} `json:"resources"`
	}
	if json.Unmarshal(detail, &check) != nil {
		return false
	}
	look := check.Resources[s.Setting]
	return s.seenBy(look.LastLook, look.SHA256)
}

// seenBy takes in a look, and reports whether it saw this state.
// A look that saw another state is no confirmation: the entry of that state may be lost, or
// not written yet.
func (s *State) seenBy(began time.Time, sha256 string) bool {
	hash := "" // of no state
	if len(s.Value) > 0 {
		hash = jsontext.Hash(s.Value)
	}
	if began.IsZero() || sha256 != hash {
		return false
	}
	if began.After(s.Seen) {
		s.Seen = began
	}
	return true
}
