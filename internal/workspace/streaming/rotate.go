package streaming

import (
	"context"
	"errors"
	"fmt"
	"slices"
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
