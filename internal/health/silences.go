package health

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
	TypeSilenceAdded = "silence.added"
	TypeSilenceEnded = "silence.ended"
	SubjectSilences  = "silences"
)

// The bounds of silences.
const (
	// LongestSilence is the longest silence.
	LongestSilence = 30 * 24 * time.Hour
	// mostSilences bounds the active silences of an environment.
	mostSilences = 100
	// longestReason bounds a reason, in bytes.
	longestReason = 500
)

// AllEnvironments stands for every environment; no slug looks like this.
var AllEnvironments = credentials.Environment{Project: "-"}

// The errors of requests that cannot be fulfilled.
var (
	ErrNoSilence         = errors.New("no such silence is active")
	ErrImpossibleSilence = errors.New("not a possible silence")
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

// silenceDetail is the Detail of an entry. Silences are the active ones after it.
type silenceDetail struct {
	Summary  string           `json:"summary"`
	Severity string           `json:"severity"`
	Silence  Silence          `json:"silence"`
	Silences []Silence        `json:"silences"`
	Reason   string           `json:"reason"` // of the entry
	Person   workspace.Person `json:"person"` // who made the entry
}

// SilencesOptions give silences their parts.
type SilencesOptions struct {
	Trail audit.Log
	// Environments are the configured ones.
	Environments []credentials.Environment
	// Now is the clock. Default time.Now.
	Now func() time.Time
}

// Silences are times without alarms, as during maintenance: of one environment, or of all. A
// silence hides neither a state nor an entry of the trail, but only marks them. A nil *Silences
// has none, and the methods may be called concurrently.
//
// The trail is the state: the newest entry of an environment has all of its silences, so that a
// crash at any line loses none. The trail is read once, and then each own entry is followed. The
// silences of another relay with the same trail count from the next start.
type Silences struct {
	trail audit.Log
	now   func() time.Time
	names []credentials.Environment // AllEnvironments, and the configured ones

	mu    sync.Mutex // held for moments only
	known map[credentials.Environment]*silencesState
}

// silencesState has the silences of an environment, or of all.
type silencesState struct {
	read  bool  // they are as in the trail
	entry int64 // the entry that they are from
	// list also has those that ended within the last hour, since a gap is settled after its
	// end.
	list []Silence
}

// NewSilences makes an empty one: see [Silences.Load].
func NewSilences(o SilencesOptions) *Silences {
	b := &Silences{trail: o.Trail, now: o.Now, names: append([]credentials.Environment{AllEnvironments}, o.Environments...), known: map[credentials.Environment]*silencesState{}}
	if b.now == nil {
		b.now = time.Now
	}
	for _, name := range b.names {
		b.known[name] = &silencesState{entry: -1}
	}
	return b
}

// Load reads from the trail those that are not known yet. An environment that cannot be read
// waits for the next call, and holds up no other.
func (b *Silences) Load(ctx context.Context) error {
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
		e, found, err := b.trail.Last(ctx, name.Project, name.Environment, SubjectSilences)
		if err != nil {
			errs = append(errs, fmt.Errorf("read the silences of %s: %w", displayName(name), err))
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

// Add begins a silence of an environment, or of [AllEnvironments]. s needs Until, Reason and Person. It
// returns the silence as the trail has it; its error wraps ErrImpossibleSilence, or the trail's.
func (b *Silences) Add(ctx context.Context, name credentials.Environment, s Silence) (Silence, error) {
	now := b.now()
	s.ID, s.Begun = newID(), now.UTC()
	s.Until = s.Until.UTC().Truncate(time.Second)
	if s.Project, s.Environment = name.Project, name.Environment; name == AllEnvironments {
		s.Project = ""
	}
	if err := b.check(name, &s, now); err != nil {
		return Silence{}, err
	}
	err := b.update(ctx, name, TypeSilenceAdded, func(active []Silence) (*silenceDetail, error) {
		switch {
		case slices.ContainsFunc(active, s.same):
			return nil, nil //nolint:nilnil // it was entered, and the acknowledgement was lost
		case len(active) >= mostSilences:
			return nil, fmt.Errorf("%w: %s has %d already; end one of them", ErrImpossibleSilence, displayName(name), len(active))
		}
		return &silenceDetail{s.begins(), "medium", s, append(active, s), s.Reason, s.Person}, nil
	})
	if err != nil {
		return Silence{}, fmt.Errorf("add a silence of %s: %w", displayName(name), err)
	}
	return s, nil
}

func (b *Silences) check(name credentials.Environment, s *Silence, now time.Time) error {
	length := s.Until.Sub(now)
	switch {
	case b.known[name] == nil:
		return fmt.Errorf("%w: %s is not in the running configuration", ErrImpossibleSilence, name)
	case length <= 0:
		return fmt.Errorf("%w: it would end at once, at %s", ErrImpossibleSilence, clock(s.Until))
	case length > LongestSilence:
		return fmt.Errorf("%w: it is longer than %d days; end it, and add another when that one is over", ErrImpossibleSilence, LongestSilence/(24*time.Hour))
	case s.Reason == "":
		return fmt.Errorf("%w: it needs a reason", ErrImpossibleSilence)
	case len(s.Reason) > longestReason:
		return fmt.Errorf("%w: its reason is longer than %d bytes", ErrImpossibleSilence, longestReason)
	}
	return nil
}

// End ends an active silence before its time. Its error wraps ErrNoSilence if there is none with
// this id.
func (b *Silences) End(ctx context.Context, id string, by workspace.Person) (Silence, error) {
	loaded := b.Load(ctx)
	s, found := b.find(id)
	switch {
	case !found && loaded != nil:
		return Silence{}, loaded
	case !found:
		return Silence{}, fmt.Errorf("%w: %q", ErrNoSilence, id)
	}
	name := s.of()
	err := b.update(ctx, name, TypeSilenceEnded, func(active []Silence) (*silenceDetail, error) {
		rest := slices.DeleteFunc(active, s.same)
		if len(rest) == len(active) {
			return nil, nil //nolint:nilnil // somebody else was quicker, or the acknowledgement was lost
		}
		return &silenceDetail{s.ends(by), "low", s, rest, s.Reason, by}, nil
	})
	if err != nil {
		return Silence{}, fmt.Errorf("end silence %s: %w", id, err)
	}
	return s, nil
}

// List returns the active silences, those of all environments first.
func (b *Silences) List() []Silence {
	all, now := []Silence{}, b.now()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, name := range b.names {
		all = append(all, activeSilences(b.known[name].list, now)...)
	}
	return all
}

// Present is Active now.
func (b *Silences) Present(name credentials.Environment) (longest Silence, found bool) {
	if b == nil {
		return Silence{}, false
	}
	return b.Active(name, b.now())
}

// Active returns the silence of an environment at a time within the last hour. Of several it
// returns the one that ends last. It reads only memory.
func (b *Silences) Active(name credentials.Environment, at time.Time) (longest Silence, found bool) {
	if b == nil {
		return Silence{}, false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, of := range []credentials.Environment{name, AllEnvironments} {
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

func (b *Silences) find(id string) (Silence, bool) {
	all := b.List()
	i := slices.IndexFunc(all, func(s Silence) bool { return s.ID == id })
	if i < 0 {
		return Silence{}, false
	}
	return all[i], true
}

// update records the silences of an environment, and then takes them over. A crash between the
// two is harmless, since the next start reads the trail.
func (b *Silences) update(ctx context.Context, name credentials.Environment, kind string, next func(active []Silence) (*silenceDetail, error)) error {
	now := b.now()
	newest := audit.Entry{Index: -1}
	e, err := audit.Update(ctx, b.trail, name.Project, name.Environment, SubjectSilences, func(last audit.Entry, found bool) (*audit.Entry, error) {
		if found {
			newest = last
		}
		d, err := next(activeSilences(silencesOf(last), now))
		if d == nil || err != nil {
			return nil, err
		}
		raw, err := json.Marshal(d)
		return &audit.Entry{Type: kind, Project: name.Project, Environment: name.Environment, Subject: SubjectSilences, Time: now, Detail: raw}, err
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
func (b *Silences) take(name credentials.Environment, e audit.Entry) {
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
	of.entry, of.list = e.Index, list[:min(len(list), 2*mostSilences)]
}

// silencesOf reads an entry; one of another form has none.
func silencesOf(e audit.Entry) []Silence {
	var d silenceDetail
	if json.Unmarshal(e.Detail, &d) != nil {
		return nil
	}
	return d.Silences[:min(len(d.Silences), mostSilences)]
}

// activeSilences gives the silences before their end.
func activeSilences(list []Silence, now time.Time) []Silence {
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
		return AllEnvironments
	}
	return credentials.Environment{Project: s.Project, Environment: s.Environment}
}

func newID() string {
	random := make([]byte, 4)
	_, _ = rand.Read(random) // never fails
	return hex.EncodeToString(random)
}
