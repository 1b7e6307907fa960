package streaming

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/auditrelay/auditrelay/config/secret"
	"github.com/auditrelay/auditrelay/internal/ingest/credentials"
	"github.com/auditrelay/auditrelay/internal/jsontext"
	"github.com/auditrelay/auditrelay/internal/trail/audit"
	"github.com/auditrelay/auditrelay/internal/workspace"
	"github.com/auditrelay/auditrelay/internal/workspace/management"
)

// subjectPuts is the subject of the entries about PUTs: each has one before it and one after
// it.
const subjectPuts = "event_log_streaming_puts"

// The types of these entries.
const (
	// TypePutIntended comes before a PUT of this relay.
	TypePutIntended = "streaming.put_intended"
	// TypePutEnded comes after a successful one, or one without a recorded outcome.
	TypePutEnded = "streaming.put_ended"
	// TypePutFailed comes after a failed one. The config may have been set all the same,
	// unless the API refused it.
	TypePutFailed = "streaming.put_failed"
)

const (
	// credentialLost is the reason of a PUT that does not wait for the trail.
	credentialLost = "credential_lost"
	// underWay is how long another host's PUT may lack an end, and how long the API may go on
	// showing the config from before a PUT. The client's calls end far earlier.
	underWay = 30 * time.Minute
	// endWithin bounds the wait for a trail that cannot be used.
	endWithin = 5 * time.Second
)

// attempt is a PUT, and the Detail of its entries.
type attempt struct {
	workspace.Attribution
	Reason []string `json:"reason"`
	Why    string   `json:"why,omitempty"` // in the words of the person who asked

	// The fields below are those of the end. Failure is short, and equal for equal causes.
	Failure   string `json:"failure,omitempty"`
	Error     string `json:"error,omitempty"`
	RequestID string `json:"request_id,omitempty"`
	Outcome   string `json:"outcome,omitempty"` // as in a person's action
	Advice    string `json:"advice,omitempty"`  // for a person

	// Sets is the destination, with the last four characters of its secret.
	Sets  *Shape    `json:"sets,omitempty"`
	Begun time.Time `json:"begun,omitzero"`
	Relay string    `json:"relay,omitempty"` // the host name of the relay that acts

	// Restores is set if the same destination was there before, set by a PUT or seen as
	// desired. So this PUT does not move the event log anywhere new.
	Restores bool `json:"restores,omitempty"`

	// What the next PUT has to know of those before it, so that a restart forgets nothing.
	// Undone counts those that were undone in a row, the first at UndoneSince. Turns counts the
	// rotations in a row because of refused pushes, the newest at TurnedAt.
	Undone      int       `json:"undone,omitempty"`
	UndoneSince time.Time `json:"undone_since,omitzero"`
	Turns       int       `json:"refusal_rotations,omitempty"`
	TurnedAt    time.Time `json:"refusal_rotated_at,omitzero"`
}

// lastPut is the newest PUT in the trail, and when its newest entry was made.
type lastPut struct {
	attempt
	found bool
	at    time.Time
	index int64
}

func (w *watcher) newestPut(ctx context.Context) (lastPut, error) {
	e, found, err := w.options.Recorder.Last(ctx, w.env.Project, w.env.Environment, subjectPuts)
	if err != nil {
		return lastPut{}, fmt.Errorf("read the PUTs of the streaming config: %w", err)
	}
	if !found {
		return lastPut{}, nil
	}
	return lastPut{attemptOf(e), true, e.Time, e.Index}, nil
}

func (w *watcher) newAttempt(ctx context.Context, o order, sets Shape) *attempt {
	p := &attempt{Attribution: workspace.ByRelay(rand.Text()), Reason: o.reason, Why: o.why, Sets: &sets, Begun: time.Now().UTC(), Relay: w.host}
	if o.person != "" {
		p.Attribution = workspace.ByPerson(p.Action, o.person)
	}
	w.remember(ctx, p)
	return p
}

// remember takes over what the newest PUT in the trail knows. If the trail cannot be read, no
// PUT can be recorded either, and only a lost credential is replaced.
func (w *watcher) remember(ctx context.Context, p *attempt) {
	p.Restores = w.stood
	before, err := w.newestPut(ctx)
	if err != nil {
		return
	}
	if before.Sets != nil && (before.Outcome == workspace.OutcomeDone || before.Restores) {
		p.Restores = p.Restores || leadsTo(*before.Sets, *p.Sets)
	}
	switch age := p.Begun.Sub(before.at); {
	case before.found && w.contest.judged == before.index+1:
		p.Undone, p.UndoneSince = w.contest.undone, w.contest.since
	case age < stands:
		p.Undone, p.UndoneSince = before.Undone, before.UndoneSince
	}
	p.Turns, p.TurnedAt = before.Turns, before.TurnedAt
	if slices.Contains(p.Reason, refusedPushesReason) {
		p.Turns, p.TurnedAt = before.turns(p.Begun)+1, p.Begun
	}
}

// settle notes the API's answer.
func (p *attempt) settle(receipt management.Receipt, err error) {
	outcome, answered := workspace.Settle(receipt, err)
	if p.Outcome, p.RequestID = outcome, answered.RequestID; err != nil {
		p.Failure, p.Error = management.CauseOf(err), err.Error()
	}
}

// intend records a PUT before it is sent. Only the replacement of a lost credential does not
// wait for a trail that cannot be used.
func (w *watcher) intend(ctx context.Context, p *attempt) error {
	w.putsEnded = false
	err := w.enter(ctx, TypePutIntended, p)
	if errors.Is(err, audit.ErrUnavailable) && slices.Contains(p.Reason, credentialLost) {
		return nil
	}
	return err
}

// end records the outcome, even after ctx has ended. Without the entry, the next look ends the
// PUT as unknown.
func (w *watcher) end(ctx context.Context, p *attempt) error {
	kind := TypePutEnded
	if p.Failure != "" {
		kind = TypePutFailed
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endWithin)
	defer cancel()
	if err := w.enter(ctx, kind, p); err != nil {
		return err
	}
	w.putsEnded = true
	return nil
}

func (w *watcher) enter(ctx context.Context, kind string, p *attempt) error {
	_, err := audit.Update(ctx, w.options.Recorder, w.env.Project, w.env.Environment, subjectPuts, func(audit.Entry, bool) (*audit.Entry, error) {
		return &audit.Entry{Type: kind, Detail: jsontext.Encode(p)}, nil
	})
	if err != nil {
		return fmt.Errorf("record a PUT of the streaming config: %w", err)
	}
	return nil
}

// endLost ends the newest PUT as unknown if it has no end, and nobody waits for its outcome any
// more.
func (w *watcher) endLost(ctx context.Context) error {
	if w.putsEnded {
		return nil
	}
	waits := false
	e, err := audit.Update(ctx, w.options.Recorder, w.env.Project, w.env.Environment, subjectPuts, func(last audit.Entry, found bool) (*audit.Entry, error) {
		if !found || last.Type != TypePutIntended {
			return nil, nil //nolint:nilnil // nothing to end is no error
		}
		p := attemptOf(last)
		if waits = p.Relay != w.host && time.Since(last.Time) < underWay; waits {
			return nil, nil //nolint:nilnil // likewise
		}
		p.Outcome, p.Error = workspace.OutcomeUnknown, "the outcome was not recorded; the API may have set the config or not"
		return &audit.Entry{Type: TypePutEnded, Detail: jsontext.Encode(p)}, nil
	})
	if err != nil {
		return fmt.Errorf("end a PUT of the streaming config without an outcome: %w", err)
	}
	if w.putsEnded = !waits; e != nil {
		w.log.Warn("a PUT of the streaming config has no known outcome: the relay ended during it", "index", e.Index)
	}
	return nil
}

// attemptOf reads the Detail of an entry; if it cannot be read, the result has no action.
func attemptOf(e audit.Entry) (p attempt) {
	if json.Unmarshal(e.Detail, &p) != nil {
		return attempt{}
	}
	return p
}

// putOf returns the PUT that left the config as a look found it, if there is one. If one took effect
// before the look, no earlier one is the cause.
func (w *watcher) putOf(ctx context.Context, shown *Shape, f workspace.Found) (by attempt, found bool, err error) {
	err = workspace.Actions(ctx, w.options.Recorder, f, subjectPuts, func(e audit.Entry, settled bool) bool {
		p := attemptOf(e)
		if p.Sets == nil {
			return true
		}
		if found = len(Plan(Desired{Shape: *p.Sets}, shown).Differs) == 0; found {
			by = p
		}
		return !found && !settled
	})
	if err != nil {
		return attempt{}, false, fmt.Errorf("find the PUT of a streaming config: %w", err)
	}
	return by, found, nil
}

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
	to, key, err := w.destination(ctx)
	if err != nil {
		return err
	}
	p := w.newAttempt(ctx, o, to)
	// If the process crashes before the intent, nothing was sent. The prepared credential is
	// dropped.
	if err := w.intend(ctx, p); err != nil {
		return err
	}
	// After a crash or a lost answer from here on, the API may have the new config. The
	// prepared credential is accepted already. The next look ends the intent as unknown, finds
	// that the config is shown, and records the change as that of this attempt.
	w.cause = p.Attribution
	answer, err := w.options.Client.SetEventLogStreaming(ctx, w.env.Project, w.env.Environment, to, key)
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
	if err := errors.Join(w.promote(ctx, to), w.end(ctx, p)); err != nil {
		return err
	}
	return w.check(ctx, o.reason)
}

// promote makes the generated credential of a PUT the current one.
func (w *watcher) promote(ctx context.Context, to Shape) error {
	if w.env.Stream.Relay == nil {
		return nil
	}
	return w.options.Credentials.Promote(ctx, w.environment(), to.LastFour)
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

// destination is the desired one, with its secret. For the relay itself that is a credential made
// for this one PUT: of older ones only hashes are kept.
func (w *watcher) destination(ctx context.Context) (to Shape, key secret.Text, err error) {
	var own credentials.State
	switch s := w.env.Stream; {
	case s.Datadog != nil:
		key = s.Datadog.APIKey
	case s.GrafanaLoki != nil:
		key = s.GrafanaLoki.Password
	default:
		issued, err := w.options.Credentials.Prepare(ctx, w.environment())
		if err != nil {
			return Shape{}, secret.Text{}, err
		}
		own.Username, key = issued.Username, issued.Password
	}
	to = desired(w.env.Stream, own).Shape
	to.LastFour = key.LastFour()
	return to, key, nil
}

// putWait is how long the n-th PUT in a row has to take effect: the next look may try again,
// then every second, every fourth, and so on.
func putWait(interval time.Duration, n int) time.Duration {
	return min(interval<<min(n-1, 10), max(maxPutWait, interval)) / 2
}
