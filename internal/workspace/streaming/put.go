package streaming

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/auditrelay/auditrelay/internal/workspace"
	"github.com/auditrelay/auditrelay/internal/workspace/management"
)

// maxPutWait is the longest wait between two attempts to set a config.
const maxPutWait = time.Hour

// order is why a config is to be set.
type order struct {
	reason []string
	person string // USER@HOST of the person who asked; empty: nobody did
	why    string // in the person's words; may be empty
}

// put sets the desired config, and looks again at the result.
func (w *watcher) put(ctx context.Context, o order) error {
	w.nowhere = false
	// This is counted first, so that failures are spaced out as well.
	w.puts++
	w.took = false
	w.putAt = time.Now()
	w.nextPut = w.putAt.Add(putWait(w.options.Interval, w.puts))
	w.putErr = w.set(ctx, o)
	if errors.Is(w.putErr, management.ErrUnreachable) { // the client itself spaces out the calls
		w.puts, w.nextPut = w.puts-1, time.Time{}
	}
	return w.putErr
}

func (w *watcher) set(ctx context.Context, o order) error {
	t, d, err := w.destination(ctx)
	if err != nil {
		return err
	}
	p := w.newAttempt(ctx, o, t, d)
	// If the process crashes before the intent, nothing was sent. The prepared credential is
	// dropped.
	if err := w.intend(ctx, p); err != nil {
		return err
	}
	// After a crash or a lost answer from here on, the API may have the new config. The
	// prepared credential is accepted already. The next look ends the intent as unknown, finds
	// that the config is shown, and records the change as that of this attempt.
	w.cause = p.Attribution
	answer, err := w.options.Client.SetEventLogStreaming(ctx, w.env.Project, w.env.Environment, t, d)
	if answer.StatusCode != 0 {
		err = nil // a 2xx that cannot be read is a success too
	}
	w.metrics.wasPut(err)
	p.settle(answer.Receipt, err)
	if err != nil {
		return errors.Join(w.failed(p, err), w.end(ctx, p))
	}
	w.took = true
	w.log.Info("streaming config set", "reason", o.reason, "by", p.Actor)
	if err := errors.Join(w.promote(ctx, d), w.end(ctx, p)); err != nil {
		return err
	}
	return w.check(ctx, o.reason)
}

// promote makes the generated credential of a PUT the current one.
func (w *watcher) promote(ctx context.Context, d management.DestinationConfig) error {
	if d.GrafanaLoki == nil || w.env.Stream.Relay == nil {
		return nil
	}
	return w.options.Credentials.Promote(ctx, w.environment(), d.GrafanaLoki.Password.LastFour())
}

// failed judges a PUT that did not succeed. One that was refused had no effect, and its action
// is forgotten.
func (w *watcher) failed(p *attempt, err error) error {
	if p.Outcome != workspace.OutcomeRefused {
		return fmt.Errorf("%w; the API may have set the config all the same: the next look tells", err)
	}
	w.cause = workspace.Attribution{}
	if !forGood(err) {
		return err
	}
	p.Advice = w.refusedAdvice(err)
	if len(w.newest.differs) > 0 { // otherwise it is as desired, whatever was asked for
		w.refusal = &refusal{of: w.newest.key(), advice: p.Advice}
		w.saw(w.newest, FindingRefused, w.newest.differs)
	}
	return fmt.Errorf("%w; %s", err, p.Advice)
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
	issued, err := w.options.Credentials.Prepare(ctx, w.environment())
	if err != nil {
		return "", management.DestinationConfig{}, err
	}
	return management.GrafanaLoki, management.DestinationConfig{GrafanaLoki: &management.GrafanaLokiDestination{
		Hostname: s.Relay.Hostname, Username: issued.Username, Password: issued.Password,
	}}, nil
}

// putWait is how long the n-th PUT in a row has to take effect: the next look may try again,
// then every second, every fourth, and so on.
func putWait(interval time.Duration, n int) time.Duration {
	return min(interval<<min(n-1, 10), max(maxPutWait, interval)) / 2
}
