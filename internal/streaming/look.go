package streaming

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/auditrelay/auditrelay/internal/audit"
	"github.com/auditrelay/auditrelay/internal/credentials"
	"github.com/auditrelay/auditrelay/internal/looks"
	"github.com/auditrelay/auditrelay/internal/management"
)

// maxPutWait is the longest wait between two attempts to set a config.
const maxPutWait = time.Hour

// look reads, records, and mends. A finding goes into the trail before it is replaced:
// while the trail cannot be written, nothing is changed, except a lost credential.
func (w *watcher) look(ctx context.Context) error {
	seen, err := w.observe(ctx)
	if err != nil {
		return w.unseen(ctx, err)
	}
	action, err := w.plan(seen)
	if err != nil {
		return err
	}
	if err := w.record(ctx, seen, detail{Attribution: w.attribute(action)}); err != nil {
		return errors.Join(err, w.replaceLost(ctx, err, seen))
	}
	w.attested(seen)
	w.saw(seen, w.finding(seen, action), action.Differs)
	if err := w.noteReads(ctx, seen.secondErr, w.types[1]); err != nil {
		return err
	}
	if err := w.present(ctx, seen); err != nil {
		return err
	}
	if w.observed() || w.dryRun {
		return seen.secondErr
	}
	if err := w.settle(ctx, action); err != nil {
		return err
	}
	if len(action.Differs) == 0 {
		w.taken()
		return seen.secondErr
	}
	if time.Now().Before(w.nextPut) {
		return w.putErr
	}
	return w.put(ctx, action.Differs)
}

// present notes that the environment exists.
func (w *watcher) present(ctx context.Context, seen observation) error {
	if seen.repeated {
		return nil
	}
	w.nowhere = seen.raw == nil && seen.second == nil && seen.secondErr == nil
	return w.presence.Present(ctx, w.env.Project, w.env.Environment, seen.requests[0])
}

// unseen notes why nothing could be read, and hands the error on.
func (w *watcher) unseen(ctx context.Context, err error) error {
	w.nowhere = false
	w.checks.Failed(Subject)
	w.checks.Failed(SubjectSecond)
	var a *management.Absence
	switch {
	case ctx.Err() != nil, errors.Is(err, management.ErrUnreachable): // the breaker's follower tells of it
		return err
	case errors.As(err, &a):
		return errors.Join(err, w.presence.Gone(ctx, w.env.Project, w.env.Environment, a))
	}
	return errors.Join(err, w.noteReads(ctx, err, w.types[0]))
}

// noteReads enters how the reads of a look ended; failed is the error of the one of type
// t, nil where all succeeded.
func (w *watcher) noteReads(ctx context.Context, failed error, t management.DestinationType) error {
	now := map[string]looks.Failure{}
	if failed != nil && !errors.Is(failed, management.ErrUnreachable) {
		now[string(t)] = looks.Failure{Cause: management.CauseOf(failed), Error: failed.Error()}
	}
	return w.failures.Note(ctx, now)
}

// attribute tells the relay's own change from another's. The API may show our prepared
// credential as set, or the desired config after a PUT without a known outcome: then a
// PUT of this relay had its effect, and its answer was lost.
func (w *watcher) attribute(a Action) looks.Attribution {
	if a.Promote != "" || w.action != "" && len(a.Differs) == 0 && !w.observed() {
		return looks.ByRelay(w.action)
	}
	return looks.Outside()
}

// replaceLost sets a new credential where nothing is known of the relay's own any more,
// though the trail cannot say so yet. With the one at the API every push is refused,
// and the provider sends none again.
func (w *watcher) replaceLost(ctx context.Context, trail error, seen observation) error {
	if !errors.Is(trail, audit.ErrUnavailable) || w.dryRun || w.observed() || w.env.Stream.Relay == nil || time.Now().Before(w.nextPut) {
		return nil
	}
	own, err := w.store.State(w.environment())
	if err != nil || own.Current != "" || own.Pending != "" || seen.shape == nil || seen.shape.Username != own.Username {
		return err
	}
	return w.put(ctx, []string{"credential_lost"})
}

func (w *watcher) plan(seen observation) (Action, error) {
	if w.observed() {
		return Action{}, nil
	}
	var own credentials.State
	if w.env.Stream.Relay != nil {
		var err error
		if own, err = w.store.State(w.environment()); err != nil {
			return Action{}, err
		}
	}
	return Plan(desired(w.env.Stream, own), seen.shape), nil
}

func (w *watcher) environment() credentials.Environment {
	return credentials.Environment{Project: w.env.Project, Environment: w.env.Environment}
}

// finding names the fault in a look.
func (w *watcher) finding(seen observation, a Action) Finding {
	switch {
	case w.observed():
		return FindingNone
	case len(a.Differs) > 0 && w.puts > 0:
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
		return w.store.Promote(ctx, w.environment(), a.Promote)
	}
	if a.Drop != "" {
		return w.store.Drop(ctx, w.environment(), a.Drop)
	}
	return nil
}

// taken notes a config as desired.
func (w *watcher) taken() { w.puts, w.nextPut, w.putErr, w.action = 0, time.Time{}, nil, "" }

// put sets the desired config, and looks again at the result.
func (w *watcher) put(ctx context.Context, reason []string) error {
	w.nowhere = false
	// Counted first, so failures are spaced out as well.
	w.puts++
	w.nextPut = time.Now().Add(putWait(w.interval, w.puts))
	w.putErr = w.set(ctx, reason)
	return w.putErr
}

func (w *watcher) set(ctx context.Context, reason []string) error {
	t, d, err := w.destination(ctx)
	if err != nil {
		return err
	}
	// A crash, or a lost answer, from here on: the API may hold the new config
	// while nothing here says so. The prepared credential is accepted already;
	// the next look finds it shown, promotes it, and records the change.
	w.action = rand.Text()
	answer, err := w.client.SetEventLogStreaming(ctx, w.env.Project, w.env.Environment, t, d)
	if answer.StatusCode != 0 {
		err = nil // an unreadable 2xx is one all the same
	}
	w.metrics.wasPut(err)
	if err != nil {
		recorded := w.recordFailedPut(ctx, reason, err)
		return errors.Join(w.refused(err), recorded)
	}
	w.log.Info("streaming config set", "reason", reason)
	if d.GrafanaLoki != nil && w.env.Stream.Relay != nil {
		if err := w.store.Promote(ctx, w.environment(), d.GrafanaLoki.Password.LastFour()); err != nil {
			return err
		}
	}
	return w.check(ctx, reason)
}

// refused forgets the action of a PUT that the API refused: it had no effect. After any
// other error it may have had one.
func (w *watcher) refused(err error) error {
	var e *management.APIError
	if errors.As(err, &e) && e.Status >= 400 && e.Status < 500 {
		w.action = ""
	}
	return err
}

// check reads the config back, and records it.
func (w *watcher) check(ctx context.Context, reason []string) error {
	seen, err := w.observe(ctx)
	if err != nil {
		return fmt.Errorf("read back the config that was set: %w", err)
	}
	if err := w.record(ctx, seen, detail{Attribution: looks.ByRelay(w.action), Reason: reason}); err != nil {
		return err
	}
	action, err := w.plan(seen)
	if err != nil {
		return err
	}
	w.saw(seen, w.finding(seen, action), action.Differs)
	if len(action.Differs) == 0 {
		w.taken()
	}
	return nil
}

// destination is the write shape of the desired config. For the relay itself it has a
// credential made for this one PUT: of older ones only hashes are kept.
func (w *watcher) destination(ctx context.Context) (management.DestinationType, management.DestinationConfig, error) {
	s := w.env.Stream
	switch {
	case s.Datadog != nil:
		return management.Datadog, management.DestinationConfig{
			Datadog: &management.DatadogDestination{APIKey: s.Datadog.APIKey, Site: s.Datadog.Site},
		}, nil
	case s.GrafanaLoki != nil:
		return management.GrafanaLoki, management.DestinationConfig{GrafanaLoki: &management.GrafanaLokiDestination{
			Hostname: s.GrafanaLoki.Hostname, Username: s.GrafanaLoki.Username, Password: s.GrafanaLoki.Password,
		}}, nil
	}
	issued, err := w.store.Prepare(ctx, w.environment())
	if err != nil {
		return "", management.DestinationConfig{}, err
	}
	return management.GrafanaLoki, management.DestinationConfig{GrafanaLoki: &management.GrafanaLokiDestination{
		Hostname: s.Relay.Hostname, Username: issued.Username, Password: issued.Password,
	}}, nil
}

// putWait is the time for the n-th PUT in a row to take effect: the next look may try
// again, then every second, every fourth, and so on.
func putWait(interval time.Duration, n int) time.Duration {
	return min(interval<<min(n-1, 10), max(maxPutWait, interval)) / 2
}
