package streaming

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/ingest/credentials"
	"github.com/auditrelay/auditrelay/internal/trail/audit"
	"github.com/auditrelay/auditrelay/internal/workspace"
	"github.com/auditrelay/auditrelay/internal/workspace/management"
)

// look ends a PUT that has no end in the trail, then reads, records and corrects the config.
func (w *watcher) look(ctx context.Context) error {
	lost := w.endLost(ctx)
	if err := w.mend(ctx); err != nil {
		return err
	}
	return lost
}

// mend reads, records, and sets the config if it differs. A finding goes into the trail before
// the config is replaced: while the trail cannot be written, nothing is changed, except for a
// lost credential.
func (w *watcher) mend(ctx context.Context) error {
	defer w.tell()
	seen, action, err := w.see(ctx)
	if err != nil {
		return err
	}
	if w.observed() || w.options.DryRun {
		return seen.secondErr
	}
	if err := w.settle(ctx, action); err != nil {
		return err
	}
	if len(action.Differs) == 0 {
		w.taken()
		return errors.Join(seen.secondErr, w.calm(ctx), w.renew(ctx))
	}
	if w.mode() == config.ModeObserve {
		return seen.secondErr
	}
	if err := w.contested(ctx, seen.shape, action.Differs); err != nil {
		return err
	}
	if time.Now().Before(w.nextPut) {
		return w.putErr
	}
	return w.put(ctx, order{reason: action.reason()})
}

// atStart reports whether a PUT follows a first look. What the look saw is not wrong yet, and
// nobody is told before the outcome, which takes a while with many environments.
func (w *watcher) atStart(f Finding) bool {
	return w.lastLook.At.IsZero() && f == FindingDiffers && !w.options.DryRun && w.mode() == config.ModeEnforce
}

// tell reports what a first look saw, if no PUT has done so.
func (w *watcher) tell() {
	if w.untold {
		w.show(w.newest, FindingDiffers, w.newest.differs)
	}
}

// see reads the configs, compares them, and records its findings.
func (w *watcher) see(ctx context.Context) (observation, Action, error) {
	seen, err := w.observe(ctx)
	if err != nil {
		return seen, Action{}, w.unseen(ctx, err)
	}
	action, err := w.plan(seen)
	if err != nil {
		return seen, action, err
	}
	seen.differs = action.Differs
	w.newest = seen
	if w.refusal != nil && w.refusal.of != seen.key() {
		w.refusal, w.puts, w.nextPut = nil, 0, time.Time{} // a person did something about it
	}
	finding := w.finding(seen, action)
	if err := w.record(ctx, seen, detail{Attribution: w.attribute(action), Advice: w.advice(finding, seen.status)}); err != nil {
		return seen, action, errors.Join(err, w.replaceLost(ctx, err, action))
	}
	w.attested(seen)
	w.saw(seen, finding, action.Differs)
	if err := w.noteReads(ctx, seen.secondErr, w.types[1]); err != nil {
		return seen, action, err
	}
	return seen, action, w.present(ctx, seen)
}

// renew replaces a credential although it is as desired, because every push with it is refused,
// or because of its age.
func (w *watcher) renew(ctx context.Context) error {
	if w.mode() == config.ModeObserve {
		return nil
	}
	was := w.puts
	if err := w.rotateRefused(ctx); err != nil || w.puts != was {
		return err
	}
	return w.rotateOld(ctx)
}

// present records that the environment exists.
func (w *watcher) present(ctx context.Context, seen observation) error {
	if seen.repeated {
		return nil
	}
	w.nowhere = seen.raw == nil && seen.second == nil && seen.secondErr == nil
	return w.options.Presence.Present(ctx, w.env.Project, w.env.Environment, seen.requests[0])
}

// unseen records why nothing could be read, and returns the error.
func (w *watcher) unseen(ctx context.Context, err error) error {
	w.nowhere = false
	w.checks.Failed(Subject)
	w.checks.Failed(SubjectSecond)
	var a *management.Absence
	switch {
	case ctx.Err() != nil, errors.Is(err, management.ErrUnreachable): // what follows the breaker reports it
		return err
	case errors.As(err, &a):
		w.absent()
		return errors.Join(err, w.options.Presence.Gone(ctx, w.env.Project, w.env.Environment, a))
	}
	if management.IsDenied(err) {
		err = fmt.Errorf("%w; give the management key the right to read it, or remove %s from the configuration", err, w.environment())
	}
	return errors.Join(err, w.noteReads(ctx, err, w.types[0]))
}

// noteReads records how the reads of a look ended; failed is the error of the one of type t, or
// nil if all succeeded.
func (w *watcher) noteReads(ctx context.Context, failed error, t management.DestinationType) error {
	now := map[string]workspace.Failure{}
	if failed != nil && !errors.Is(failed, management.ErrUnreachable) {
		now[string(t)] = workspace.Failure{Cause: management.CauseOf(failed), Error: failed.Error()}
	}
	return w.failures.Note(ctx, now)
}

// attribute tells the relay's own change from that of others. If the API shows our prepared
// credential as set, or the desired config after a PUT without a known outcome, then a PUT of
// this process took effect, and its answer was lost. Those of earlier processes are in the
// trail (see putOf).
func (w *watcher) attribute(a Action) workspace.Attribution {
	if a.Promote != "" || w.cause.Cause != "" && len(a.Differs) == 0 && !w.observed() {
		return w.own()
	}
	return workspace.Outside()
}

// own attributes a change to the newest PUT of this process, if its action is known.
func (w *watcher) own() workspace.Attribution {
	if w.cause.Cause == "" {
		return workspace.ByRelay("")
	}
	return w.cause
}

// replaceLost sets a new credential for a lost one, though the trail cannot record it yet,
// because the provider never sends refused pushes again.
func (w *watcher) replaceLost(ctx context.Context, trail error, a Action) error {
	if !errors.Is(trail, audit.ErrUnavailable) || w.mode() == config.ModeObserve || !a.Lost || time.Now().Before(w.nextPut) {
		return nil
	}
	return w.put(ctx, order{reason: a.reason()})
}

func (w *watcher) plan(seen observation) (Action, error) {
	if w.observed() {
		return Action{}, nil
	}
	wanted, err := w.desired()
	if err != nil {
		return Action{}, err
	}
	return Plan(wanted, seen.shape), nil
}

// desired is what the configuration wants, which has a Stream, with the state of the relay's own
// credential.
func (w *watcher) desired() (Desired, error) {
	var own credentials.State
	if w.env.Stream.Relay != nil {
		var err error
		if own, err = w.options.Credentials.State(w.environment()); err != nil {
			return Desired{}, err
		}
	}
	return desired(w.env.Stream, own), nil
}

func (w *watcher) environment() credentials.Environment {
	return credentials.EnvironmentOf(w.env)
}

// finding names the fault in a look.
func (w *watcher) finding(seen observation, a Action) Finding {
	switch {
	case w.observed():
		return FindingNone
	case len(a.Differs) > 0 && w.refusal != nil:
		return FindingRefused
	case len(a.Differs) > 0 && w.puts > 0 && w.took:
		return FindingNotTaken
	case len(a.Differs) > 0:
		return FindingDiffers
	case seen.status != management.StatusActive:
		return FindingNotActive
	}
	return FindingNone
}

// settle marks the own credentials as the API shows them.
func (w *watcher) settle(ctx context.Context, a Action) error {
	if a.Promote != "" {
		return w.options.Credentials.Promote(ctx, w.environment(), a.Promote)
	}
	if a.Drop != "" {
		return w.options.Credentials.Drop(ctx, w.environment(), a.Drop)
	}
	return nil
}

// taken records that a config is as desired.
func (w *watcher) taken() {
	w.puts, w.nextPut, w.putErr, w.stood = 0, time.Time{}, nil, true
	w.refusal, w.cause, w.contest.judged = nil, workspace.Attribution{}, 0
}

// check reads the config back, and records it.
func (w *watcher) check(ctx context.Context, reason []string) error {
	seen, err := w.observe(ctx)
	if err != nil {
		return fmt.Errorf("read back the new config: %w", err)
	}
	action, err := w.plan(seen)
	if err != nil {
		return err
	}
	finding := w.finding(seen, action)
	d := detail{Attribution: w.own(), Reason: reason, Advice: w.advice(finding, seen.status)}
	if err := w.record(ctx, seen, d); err != nil {
		return err
	}
	seen.differs = action.Differs
	w.newest = seen
	w.saw(seen, finding, action.Differs)
	if len(action.Differs) == 0 {
		w.taken()
	}
	return nil
}
