// Package silences keeps times without alarms, as during maintenance: of one environment, or of
// all. A silence hides neither a state nor an entry of the trail, but only marks them.
//
// The trail is the state: the newest entry of an environment has all of its silences, so that a
// crash at any line loses none. A book reads the trail once, and then follows its own entries.
// The silences of another relay with the same trail count from the next start.
package silences

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/auditrelay/auditrelay/internal/ingest/credentials"
	"github.com/auditrelay/auditrelay/internal/trail/audit"
	"github.com/auditrelay/auditrelay/internal/workspace"
)

// The types and the subject of the room's audit entries.
const (
	TypeAdded = "silence.added"
	TypeEnded = "silence.ended"
	Subject   = "silences"
)

// The bounds of silences.
const (
	// Longest is the longest silence.
	Longest = 30 * 24 * time.Hour
	// Most bounds the active silences of an environment.
	Most = 100
	// LongestReason bounds a reason, in bytes.
	LongestReason = 500
)

// All stands for every environment; no slug looks like this.
var All = credentials.Environment{Project: "-"}

// The errors of requests that cannot be fulfilled.
var (
	ErrUnknown = errors.New("no such silence is active")
	ErrInvalid = errors.New("not a possible silence")
)

// Silence is a time without alarms.
type Silence struct {
	ID string `json:"id"`
	// Project and Environment are empty for a silence of all environments.
	Project     string           `json:"project,omitempty"`
	Environment string           `json:"environment,omitempty"`
	Begun       time.Time        `json:"begun"`
	Until       time.Time        `json:"until"`
	Reason      string           `json:"reason"`
	Person      workspace.Person `json:"person"`
}

// detail is the Detail of an entry. Silences are the active ones after it.
type detail struct {
	Summary  string           `json:"summary"`
	Severity string           `json:"severity"`
	Silence  Silence          `json:"silence"`
	Silences []Silence        `json:"silences"`
	Reason   string           `json:"reason"` // of the entry
	Person   workspace.Person `json:"person"` // who made the entry
}

// Options give a book its parts.
type Options struct {
	Trail audit.Log
	// Environments are the configured ones.
	Environments []credentials.Environment
	// Now is the clock. Default time.Now.
	Now func() time.Time
}

// Book has the silences. Its methods may be called concurrently; a nil book has none.
type Book struct {
	trail audit.Log
	now   func() time.Time
	names []credentials.Environment // All, and the configured ones

	mu    sync.Mutex // held for moments only
	known map[credentials.Environment]*state
}

// state has the silences of an environment, or of all.
type state struct {
	read  bool  // they are as in the trail
	entry int64 // the entry that they are from
	// list also has those that ended within the last hour, since a gap is settled after its
	// end.
	list []Silence
}

// New makes a book without silences: see [Book.Load].
func New(o Options) *Book {
	b := &Book{trail: o.Trail, now: o.Now, names: append([]credentials.Environment{All}, o.Environments...), known: map[credentials.Environment]*state{}}
	if b.now == nil {
		b.now = time.Now
	}
	for _, name := range b.names {
		b.known[name] = &state{entry: -1}
	}
	return b
}

// Load reads from the trail those that are not known yet. An environment that cannot be read
// waits for the next call, and holds up no other.
func (b *Book) Load(ctx context.Context) error {
	if b == nil {
		return nil
	}
	var errs []error
	for _, name := range b.names {
		b.mu.Lock()
		read := b.known[name].read
		b.mu.Unlock()
		if read {
			continue
		}
		e, found, err := b.trail.Last(ctx, name.Project, name.Environment, Subject)
		if err != nil {
			errs = append(errs, fmt.Errorf("read the silences of %s: %w", display(name), err))
			if errors.Is(err, audit.ErrUnavailable) {
				break
			}
			continue
		}
		if !found {
			e.Index = -1
		}
		b.take(name, e)
	}
	return errors.Join(errs...)
}

// Add begins a silence of an environment, or of [All]. s needs Until, Reason and Person. It
// returns the silence as the trail has it; its error wraps ErrInvalid, or the trail's.
func (b *Book) Add(ctx context.Context, name credentials.Environment, s Silence) (Silence, error) {
	now := b.now()
	s.ID, s.Begun = newID(), now.UTC()
	s.Until = s.Until.UTC().Truncate(time.Second)
	if s.Project, s.Environment = name.Project, name.Environment; name == All {
		s.Project = ""
	}
	if err := b.check(name, &s, now); err != nil {
		return Silence{}, err
	}
	err := b.update(ctx, name, TypeAdded, func(active []Silence) (*detail, error) {
		switch {
		case slices.ContainsFunc(active, s.same):
			return nil, nil //nolint:nilnil // it was entered, and the acknowledgement was lost
		case len(active) >= Most:
			return nil, fmt.Errorf("%w: %s has %d already; end one of them", ErrInvalid, display(name), len(active))
		}
		return &detail{s.begins(), "medium", s, append(active, s), s.Reason, s.Person}, nil
	})
	if err != nil {
		return Silence{}, fmt.Errorf("add a silence of %s: %w", display(name), err)
	}
	return s, nil
}

func (b *Book) check(name credentials.Environment, s *Silence, now time.Time) error {
	length := s.Until.Sub(now)
	switch {
	case b.known[name] == nil:
		return fmt.Errorf("%w: %s is not in the running configuration", ErrInvalid, name)
	case length <= 0:
		return fmt.Errorf("%w: it would end at once, at %s", ErrInvalid, clock(s.Until))
	case length > Longest:
		return fmt.Errorf("%w: it is longer than %d days; end it, and add another when that one is over", ErrInvalid, Longest/(24*time.Hour))
	case s.Reason == "":
		return fmt.Errorf("%w: it needs a reason", ErrInvalid)
	case len(s.Reason) > LongestReason:
		return fmt.Errorf("%w: its reason is longer than %d bytes", ErrInvalid, LongestReason)
	}
	return nil
}

// End ends an active silence before its time. Its error wraps ErrUnknown if there is none with
// this id.
func (b *Book) End(ctx context.Context, id string, by workspace.Person) (Silence, error) {
	loaded := b.Load(ctx)
	s, found := b.find(id)
	switch {
	case !found && loaded != nil:
		return Silence{}, loaded
	case !found:
		return Silence{}, fmt.Errorf("%w: %q", ErrUnknown, id)
	}
	name := s.of()
	err := b.update(ctx, name, TypeEnded, func(active []Silence) (*detail, error) {
		rest := slices.DeleteFunc(active, s.same)
		if len(rest) == len(active) {
			return nil, nil //nolint:nilnil // somebody else was quicker, or the acknowledgement was lost
		}
		return &detail{s.ends(by), "low", s, rest, s.Reason, by}, nil
	})
	if err != nil {
		return Silence{}, fmt.Errorf("end silence %s: %w", id, err)
	}
	return s, nil
}

// List returns the active silences, those of all environments first.
func (b *Book) List() []Silence {
	all, now := []Silence{}, b.now()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, name := range b.names {
		all = append(all, active(b.known[name].list, now)...)
	}
	return all
}

// Present is Active now.
func (b *Book) Present(name credentials.Environment) (longest Silence, found bool) {
	if b == nil {
		return Silence{}, false
	}
	return b.Active(name, b.now())
}

// Active returns the silence of an environment at a time within the last hour. Of several it
// returns the one that ends last. It reads only memory.
func (b *Book) Active(name credentials.Environment, at time.Time) (longest Silence, found bool) {
	if b == nil {
		return Silence{}, false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, of := range []credentials.Environment{name, All} {
		if b.known[of] == nil {
			continue
		}
		for _, s := range b.known[of].list {
			if !s.Begun.After(at) && s.Until.After(at) && s.Until.After(longest.Until) {
				longest, found = s, true
			}
		}
	}
	return longest, found
}

func (b *Book) find(id string) (Silence, bool) {
	all := b.List()
	i := slices.IndexFunc(all, func(s Silence) bool { return s.ID == id })
	if i < 0 {
		return Silence{}, false
	}
	return all[i], true
}

// update records the silences of an environment, and then takes them over. A crash between the
// two is harmless, since the next start reads the trail.
func (b *Book) update(ctx context.Context, name credentials.Environment, kind string, next func(active []Silence) (*detail, error)) error {
	now := b.now()
	newest := audit.Entry{Index: -1}
	e, err := audit.Update(ctx, b.trail, name.Project, name.Environment, Subject, func(last audit.Entry, found bool) (*audit.Entry, error) {
		if found {
			newest = last
		}
		d, err := next(active(silencesOf(last), now))
		if d == nil || err != nil {
			return nil, err
		}
		raw, err := json.Marshal(d)
		return &audit.Entry{Type: kind, Project: name.Project, Environment: name.Environment, Subject: Subject, Time: now, Detail: raw}, err
	})
	if err != nil {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.known[name].read = false // the entry may be there all the same
		return err
	}
	if e == nil {
		e = &newest
	}
	b.take(name, *e)
	return nil
}

// take takes over the silences of an entry, unless a newer one counts.
func (b *Book) take(name credentials.Environment, e audit.Entry) {
	now := b.now()
	b.mu.Lock()
	defer b.mu.Unlock()
	of := b.known[name]
	of.read = true
	if e.Index < of.entry {
		return
	}
	list := silencesOf(e)
	for _, old := range of.list {
		if slices.ContainsFunc(list, old.same) || now.Sub(old.Until) > time.Hour {
			continue
		}
		if old.Until.After(now) {
			old.Until = now // it was ended
		}
		list = append(list, old)
	}
	of.entry, of.list = e.Index, list[:min(len(list), 2*Most)]
}

// silencesOf reads an entry; one of another form has none.
func silencesOf(e audit.Entry) []Silence {
	var d detail
	if json.Unmarshal(e.Detail, &d) != nil {
		return nil
	}
	return d.Silences[:min(len(d.Silences), Most)]
}

// active gives the silences before their end.
func active(list []Silence, now time.Time) []Silence {
	all := []Silence{}
	for _, s := range list {
		if s.Until.After(now) {
			all = append(all, s)
		}
	}
	return all
}

func (s *Silence) of() credentials.Environment {
	if s.Project == "" {
		return All
	}
	return credentials.Environment{Project: s.Project, Environment: s.Environment}
}

func newID() string {
	random := make([]byte, 4)
	_, _ = rand.Read(random) // never fails
	return hex.EncodeToString(random)
}
