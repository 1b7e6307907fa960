package health

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/auditrelay/auditrelay/internal/ingest/credentials"
	"github.com/auditrelay/auditrelay/internal/jsontext"
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

	acting sync.Mutex                // held over a use of the trail
	mu     sync.Mutex                // guards the fields below; held for moments only
	names  []credentials.Environment // AllEnvironments, and the configured ones
	known  map[credentials.Environment]silencesState
}

// silencesState has the silences of an environment, or of all.
type silencesState struct {
	list []Silence
	read bool // they are as in the trail
}

// NewSilences makes an empty one for the configured environments: see [Silences.Load].
func NewSilences(trail audit.Log, environments []credentials.Environment) *Silences {
	return &Silences{
		trail: trail, now: time.Now, known: map[credentials.Environment]silencesState{},
		names: append([]credentials.Environment{AllEnvironments}, environments...),
	}
}

// Load reads from the trail those that are not known yet. An environment that cannot be read
// waits for the next call, and holds up no other.
func (b *Silences) Load(ctx context.Context) error {
	if b == nil {
		return nil
	}
	b.acting.Lock()
	defer b.acting.Unlock()
	var errs []error
	for _, name := range b.configured() {
		if b.of(name).read {
			continue
		}
		e, _, err := b.trail.Last(ctx, name.Project, name.Environment, SubjectSilences)
		if err == nil {
			b.set(name, silencesState{silencesOf(e), true})
			continue
		}
		errs = append(errs, fmt.Errorf("read the silences of %s: %w", displayName(name), err))
		if errors.Is(err, audit.ErrUnavailable) {
			break
		}
	}
	return errors.Join(errs...)
}

func (b *Silences) of(name credentials.Environment) silencesState {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.known[name]
}

func (b *Silences) set(name credentials.Environment, now silencesState) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.known[name] = now
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
	case !slices.Contains(b.configured(), name):
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
	all := b.List()
	i := slices.IndexFunc(all, func(s Silence) bool { return s.ID == id })
	switch {
	case i < 0 && loaded != nil:
		return Silence{}, loaded
	case i < 0:
		return Silence{}, fmt.Errorf("%w: %q", ErrNoSilence, id)
	}
	s := all[i]
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
	for _, name := range b.configured() {
		all = append(all, activeSilences(b.of(name).list, now)...)
	}
	return all
}

// Present returns the active silence of an environment. Of several it returns the one that ends
// last. It reads only memory.
func (b *Silences) Present(name credentials.Environment) (longest Silence, found bool) {
	if b == nil {
		return Silence{}, false
	}
	for _, of := range []credentials.Environment{name, AllEnvironments} {
		for _, s := range activeSilences(b.of(of).list, b.now()) {
			if s.Until.After(longest.Until) {
				longest, found = s, true
			}
		}
	}
	return longest, found
}

// update records the silences of an environment, and then takes them over. A crash between the
// two is harmless, since the next start reads the trail.
func (b *Silences) update(ctx context.Context, name credentials.Environment, kind string, next func(active []Silence) (*silenceDetail, error)) error {
	b.acting.Lock()
	defer b.acting.Unlock()
	now := b.now()
	var list []Silence
	_, err := audit.Update(ctx, b.trail, name.Project, name.Environment, SubjectSilences, func(last audit.Entry, _ bool) (*audit.Entry, error) {
		list = silencesOf(last)
		d, err := next(activeSilences(list, now))
		if d == nil || err != nil {
			return nil, err
		}
		list = d.Silences
		return &audit.Entry{Type: kind, Time: now, Detail: jsontext.Encode(d)}, nil
	})
	if err != nil { // the entry may be there all the same
		b.set(name, silencesState{list: b.of(name).list})
		return err
	}
	b.set(name, silencesState{list, true})
	return nil
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
	return slices.DeleteFunc(append([]Silence{}, list...), func(s Silence) bool { return !s.Until.After(now) })
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

func (s *Silence) same(other Silence) bool { return s.ID == other.ID }

// begins describes a silence in one line: "silence of shop/live until 2026-11-22 14:00:00 UTC
// by ann@host: upgrade".
func (s *Silence) begins() string {
	return fmt.Sprintf("silence of %s until %s by %s: %s", displayName(s.of()), clock(s.Until), s.Person, s.Reason)
}

func (s *Silence) ends(by workspace.Person) string {
	return fmt.Sprintf("silence of %s ended by %s, before %s; its reason was: %s", displayName(s.of()), by, clock(s.Until), s.Reason)
}

func displayName(name credentials.Environment) string {
	if name == AllEnvironments {
		return "all environments"
	}
	return name.String()
}

// Reconfigure replaces the configured environments. Those that are new are read by the next Load.
func (b *Silences) Reconfigure(environments []credentials.Environment) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.names = append([]credentials.Environment{AllEnvironments}, environments...)
	maps.DeleteFunc(b.known, func(name credentials.Environment, _ silencesState) bool { return !slices.Contains(b.names, name) })
}

// configured are the environments that may be silenced.
func (b *Silences) configured() []credentials.Environment {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.names
}
