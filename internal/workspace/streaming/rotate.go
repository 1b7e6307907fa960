package streaming

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"sync"
	"time"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/ingest/credentials"
	"github.com/auditrelay/auditrelay/internal/workspace"
	"github.com/auditrelay/auditrelay/internal/workspace/management"
)

var (
	// ErrNotGenerated says the environment has no credential of the relay's.
	ErrNotGenerated = errors.New("the environment is not streamed to this relay")
	// ErrNotDesired says nothing is desired of the environment's streaming config.
	ErrNotDesired = errors.New("the configuration has no stream for this environment")
	// ErrElsewhere says the stream ends elsewhere, and is to stay so.
	ErrElsewhere = errors.New("the stream does not end at this relay, and mode observe leaves it there")
	// ErrDryRun says nothing may be changed.
	ErrDryRun = errors.New("this is a dry run")
)

// Rotate replaces an environment's generated credential. The old one is accepted for the
// overlap. The entries name the person, and why, in the person's own words; may be empty.
func (r *Reconciler) Rotate(ctx context.Context, env credentials.Environment, by workspace.Person, why string) error {
	w := r.byName[env]
	if w == nil || w.observed() || w.env.Stream.Relay == nil {
		return fmt.Errorf("rotate the credential of %s: %w", env, ErrNotGenerated)
	}
	if w.options.DryRun {
		return ErrDryRun
	}
	return w.forPerson(ctx, func(ctx context.Context) error {
		action, err := w.lookFirst(ctx)
		if err != nil {
			return err
		}
		if w.mode() == config.ModeObserve && slices.ContainsFunc(action.Differs, func(field string) bool { return field != "secret" }) {
			return fmt.Errorf("rotate the credential of %s: %w", env, ErrElsewhere)
		}
		return w.put(ctx, order{reason: []string{"rotation"}, person: by.String(), why: why})
	})
}

// forPerson does what a person's command asks for. An API that could not be used is asked
// at once. Where it asked to wait, the command is refused, and does not wait for a look that
// may wait in its turn; nor does it wait for a look that waits for an API without answers.
func (w *watcher) forPerson(ctx context.Context, do func(context.Context) error) error {
	ctx = management.ForPerson(ctx)
	if err := w.options.Client.Held(ctx); err != nil {
		return err
	}
	select {
	case w.turn <- struct{}{}:
		defer func() { <-w.turn }()
		return do(ctx)
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(waitsForLook):
	}
	if err := w.options.Client.Check(ctx); err != nil {
		return err
	}
	return w.inTurn(ctx, do)
}

// waitsForLook is how long a person's command waits for a look. Then the API is asked for the
// person: the look may wait for an answer that never comes.
const waitsForLook = 3 * time.Second

// lookFirst records the config before a PUT on request overwrites it.
func (w *watcher) lookFirst(ctx context.Context) (Action, error) {
	if err := w.endLost(ctx); err != nil {
		return Action{}, err
	}
	_, action, err := w.see(ctx)
	return action, err
}

// Apply sets the desired config now, once, whether it differs or not: the last four
// characters do not prove a secret. The entries name the person, and why, in the person's
// own words; may be empty. It returns the state afterwards.
func (r *Reconciler) Apply(ctx context.Context, env credentials.Environment, by workspace.Person, why string) (Preview, error) {
	w, err := r.desiring(env)
	if err != nil {
		return Preview{}, err
	}
	if w.options.DryRun {
		return Preview{}, ErrDryRun
	}
	err = w.forPerson(ctx, func(ctx context.Context) error {
		action, err := w.lookFirst(ctx)
		if err != nil {
			return err
		}
		return w.put(ctx, order{reason: append(action.reason(), "asked_for"), person: by.String(), why: why})
	})
	if err != nil {
		return Preview{}, fmt.Errorf("set the streaming config of %s: %w", env, err)
	}
	return r.Plan(ctx, env)
}

// desiring is the watcher of an environment with a desired config.
func (r *Reconciler) desiring(env credentials.Environment) (*watcher, error) {
	w := r.byName[env]
	if w == nil || w.observed() {
		return nil, fmt.Errorf("%s: %w", env, ErrNotDesired)
	}
	return w, nil
}

// scheduledReason is the reason of a rotation by age.
const scheduledReason = "rotation_schedule"

// gate keeps the scheduled rotations of all environments apart, so not all credentials
// are new at the same moment.
type gate struct {
	apart time.Duration

	mu   sync.Mutex // guards next
	next time.Time
}

// mostApart bounds the time between the rotations of two environments.
const mostApart = time.Minute

// newGate leaves room for all environments within a part of the age.
func newGate(o Options) *gate {
	return &gate{apart: min(o.RotateEvery/time.Duration(20*len(o.Environments)+1), mostApart)}
}

// pass reports whether a rotation may begin now.
func (g *gate) pass(now time.Time) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if wait := g.next.Sub(now); wait > 0 && wait <= g.apart { // a clock that was ahead then stops nothing
		return false
	}
	g.next = now.Add(g.apart)
	return true
}

// schedule rotates a generated credential by its age. The credentials store knows when it was
// made, so a restart neither skips a rotation nor repeats one.
type schedule struct {
	every    time.Duration // 0: never
	gate     *gate
	failures int // in a row
	next     time.Time
	err      error // of the last attempt
}

// due reports whether a credential made at a time is too old. Each environment has its own
// time within the last tenth of the age.
func (s *schedule) due(env credentials.Environment, made, now time.Time) bool {
	if s.every == 0 || made.IsZero() {
		return false
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(env.Username())) // never fails
	early := time.Duration(float64(s.every) / 10 * float64(h.Sum32()) / (1 << 32))
	return now.Sub(made) >= s.every-early || made.Sub(now) > s.every // made by a clock far ahead
}

// rotateOld rotates a credential that is too old. A crash before the PUT leaves the age as it
// is; after a crash that follows it, the next look promotes the new one.
func (w *watcher) rotateOld(ctx context.Context) error {
	s := &w.schedule
	if s.every == 0 || w.env.Stream.Relay == nil || w.contest.open {
		return nil
	}
	own, err := w.options.Credentials.State(w.environment())
	now := time.Now()
	if err != nil || own.Current == "" || !s.due(w.environment(), own.Made, now) {
		return err
	}
	if now.Before(s.next) {
		return s.err
	}
	if !s.gate.pass(now) {
		return nil
	}
	if s.err = w.put(ctx, order{reason: []string{scheduledReason}}); s.err != nil {
		s.failures++
		s.next = now.Add(putWait(w.options.Interval, s.failures))
		s.err = fmt.Errorf("rotate the credential by schedule: %w", s.err)
		return s.err
	}
	s.failures, s.next = 0, time.Time{}
	return nil
}
