package health

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/auditrelay/auditrelay/internal/jsontext"
	"github.com/auditrelay/auditrelay/internal/migration"
	"github.com/auditrelay/auditrelay/internal/trail/audit"
	"github.com/auditrelay/auditrelay/internal/workspace/meaning"
)

// The types and subjects of the room's audit entries.
const (
	// TypeChanged is a transition of an environment's state.
	TypeChanged = "health.changed"
	// TypeGap is a gap, after its end.
	TypeGap = "health.gap"

	// Subject is an environment's state.
	Subject    = "streaming_health"
	subjectGap = "streaming_gap"
)

// maxEntries bounds the entered transitions of an environment in an hour. Those
// beyond are summed up in the next one.
const maxEntries = 10

// change is the Detail of a transition's entry.
type change struct {
	Summary  string           `json:"summary"`
	Severity meaning.Severity `json:"severity"`
	From     State            `json:"from"`
	To       State            `json:"to"`
	Reason   string           `json:"reason"`
	Action   string           `json:"action"`
	Runbook  string           `json:"runbook,omitempty"` // the page about To
	Since    time.Time        `json:"since"`
	// Skipped counts the transitions between From and To without an entry.
	Skipped int `json:"transitions_skipped,omitempty"`
	// Silenced is the id of the silence at the time; empty for none.
	Silenced string         `json:"silenced,omitempty"`
	Declared DeclaredStatus `json:"declared"`
	Observed ObservedStatus `json:"observed"`
}

// gapDetail is the Detail of a gap's entry.
type gapDetail struct {
	Summary  string           `json:"summary"`
	Severity meaning.Severity `json:"severity"`
	Gap
}

// entries is the writer's part of a watch; nobody else uses it.
type entries struct {
	restored bool        // the state of earlier processes was read
	times    []time.Time // of the transitions entered in the last hour
}

// enter brings the trail up to date. An environment whose entry fails waits for the next
// call, and holds up no other.
func (k *Keeper) enter(ctx context.Context) error {
	if k.options.Trail == nil {
		return nil
	}
	errs := []error{k.options.Silences.Load(ctx)}
	for _, w := range k.all() {
		err := k.restore(ctx, w)
		if err == nil {
			err = errors.Join(k.enterGaps(ctx, w), k.enterState(ctx, w), k.noteFlood(ctx, w))
		}
		if errs = append(errs, err); errors.Is(err, audit.ErrUnavailable) {
			break
		}
	}
	return errors.Join(errs...)
}

// restore takes over the state of the trail's newest entry, if none counts yet.
func (k *Keeper) restore(ctx context.Context, w *watch) error {
	if w.entries.restored {
		return nil
	}
	e, found, err := k.options.Trail.Last(ctx, w.Environment.Project, w.Environment.Environment, Subject)
	if err != nil {
		return fmt.Errorf("read the last state of %s: %w", w.Environment, err)
	}
	var c change
	if found && json.Unmarshal(e.Detail, &c) == nil && c.To.known() {
		k.mu.Lock()
		w.held.restore(Verdict{State: c.To, Reason: c.Reason, Since: c.Since, Action: c.Action})
		k.mu.Unlock()
	}
	w.entries.restored = true
	return nil
}

// noteFlood takes over the newest migration of an environment.
func (k *Keeper) noteFlood(ctx context.Context, w *watch) error {
	e, _, err := k.options.Trail.Last(ctx, w.Environment.Project, w.Environment.Environment, migration.Subject)
	if err != nil {
		return fmt.Errorf("read the newest migration of %s: %w", w.Environment, err)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	w.flood = e
	return nil
}

// restore takes over the state of an earlier process.
func (h *held) restore(v Verdict) {
	switch {
	case !h.known:
		h.verdict, h.known = v, true
	case h.verdict.State == v.State:
		h.verdict.Since = v.Since
	default:
		h.due = true
	}
}

// enterState enters the state, unless the trail's newest entry shows it. A crash before the
// append leaves it to the next process and its own judgement; after it nothing is left to do.
func (k *Keeper) enterState(ctx context.Context, w *watch) error {
	k.mu.Lock()
	due, before := w.held.due, w.held.before
	now := time.Now()
	c := w.change()
	k.mu.Unlock()
	c.Silenced = k.silenced(w)
	w.entries.forget(now)
	if !due || len(w.entries.times) >= maxEntries {
		return nil
	}
	e, err := audit.Update(ctx, k.options.Trail, w.Environment.Project, w.Environment.Environment, Subject, func(last audit.Entry, found bool) (*audit.Entry, error) {
		var was change
		_ = json.Unmarshal(last.Detail, &was) // one of another form shows no state
		if was.To == c.To || !found && (c.To == Flowing || c.To == Unknown) {
			return nil, nil //nolint:nilnil // nothing to enter is no error
		}
		c.From = cmp.Or(was.To, before, Unknown)
		return &audit.Entry{Type: TypeChanged, Time: now, Detail: jsontext.Encode(c)}, nil
	})
	if err != nil {
		return fmt.Errorf("enter the state of %s: %w", w.Environment, err)
	}
	if e != nil {
		w.entries.times = append(w.entries.times, now)
		k.logChange(w, c)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	w.held.entered(c)
	return nil
}

// entered notes the trail's newest state, c.
func (h *held) entered(c change) {
	if h.verdict.State == c.To {
		h.due, h.skipped = false, 0
		return
	}
	h.before = c.To // it has changed meanwhile
	h.skipped = max(0, h.skipped-c.Skipped-1)
}

// forget drops the times older than an hour.
func (x *entries) forget(now time.Time) {
	for len(x.times) > 0 && now.Sub(x.times[0]) >= time.Hour {
		x.times = x.times[1:]
	}
}

// silenced gives the id of the environment's present silence; empty: there is none.
func (k *Keeper) silenced(w *watch) string {
	s, _ := k.options.Silences.Present(w.Environment)
	return s.ID
}

func (k *Keeper) logChange(w *watch, c change) {
	log := k.log.With("project", w.Environment.Project, "environment", w.Environment.Environment, "from", c.From, "to", c.To)
	if c.Severity == meaning.Info || c.Severity == meaning.Low {
		log.Info(c.Summary)
		return
	}
	log.Warn(c.Summary, "action", c.Action)
}

// enterGaps enters the settled gaps. The file keeps those due, and is saved between two
// entries. So after a crash only the first one due may be in the trail already, as its
// newest: none is entered twice. Times tell no order, as the clock may be set back. While
// the file cannot be saved, each call enters one all the same, since a gap that is told
// twice after a crash is better than one that nobody is told of.
func (k *Keeper) enterGaps(ctx context.Context, w *watch) error {
	for entered := 0; ; entered++ {
		k.mu.Lock()
		var due []Gap
		due = append(due, w.Due...)
		k.mu.Unlock()
		if len(due) == 0 {
			return nil
		}
		if entered > 0 {
			if err := k.writer.save(false); err != nil {
				return fmt.Errorf("save the gaps of %s: %w", w.Environment, err)
			}
		}
		g, index := due[0], int64(0)
		e, err := audit.Update(ctx, k.options.Trail, w.Environment.Project, w.Environment.Environment, subjectGap, func(last audit.Entry, found bool) (*audit.Entry, error) {
			var was gapDetail
			if found && json.Unmarshal(last.Detail, &was) == nil && g.same(was.Gap) {
				index = last.Index
				return nil, nil //nolint:nilnil // it has been entered
			}
			return &audit.Entry{Type: TypeGap, Detail: jsontext.Encode(gapDetail{g.sentence(w.Environment.Environment), meaning.High, g})}, nil
		})
		if err != nil {
			return fmt.Errorf("enter a gap of %s: %w", w.Environment, err)
		}
		if e != nil {
			index = e.Index
		}
		k.mu.Lock()
		w.entered(g, index)
		w.changed = true
		k.mu.Unlock()
	}
}

// sentence tells of a gap in one line.
func (g *Gap) sentence(environment string) string {
	return fmt.Sprintf("%s: %s from %s to %s: %s", environment, g.Lost(), clock(g.Begun), clock(g.Ended), g.Reason)
}

// held is the present state: a verdict after it has held for a moment, so nothing flaps.
type held struct {
	verdict Verdict
	// known: a verdict has counted, in this run or an earlier one. Until then the state
	// is Unknown.
	known bool
	// before is the state before, empty for none; due: the transition may not be in the
	// trail yet; skipped counts those summed up with the next.
	before  State
	due     bool
	skipped int

	next      State // would count if it held
	nextSince time.Time
}

// How long a verdict must hold.
const (
	holdTrouble = 1500 * time.Millisecond // three looks, each a second after the one before
	holdOther   = 10 * time.Second        // from trouble to anything else
)

// judged takes the verdict of this moment.
func (h *held) judged(v Verdict, interval time.Duration, now time.Time) {
	if h.known && v.State == h.verdict.State {
		h.next = ""
		if v.Since.IsZero() || v.State != Gapped {
			v.Since = h.verdict.Since
		}
		h.verdict = v
		return
	}
	if v.State != h.next {
		h.next, h.nextSince = v.State, now
	}
	if !h.known { // until then, with the reason of this moment
		h.verdict = Verdict{State: Unknown, Reason: v.Reason, Since: h.nextSince, Action: v.Action}
		if v.State != Unknown {
			h.verdict.Reason, h.verdict.Action = "the relay has just started", ""
		}
	}
	if now.Sub(h.nextSince) < h.hold(v.State, interval) {
		return
	}
	if v.Since.IsZero() {
		v.Since = h.nextSince
	}
	if h.due {
		h.skipped++
	} else {
		h.before = h.verdict.State
	}
	h.due = h.known || !v.State.good() && v.State != Unknown
	h.verdict, h.known, h.next = v, true, ""
}

// hold is how long a verdict must hold to count.
func (h *held) hold(next State, interval time.Duration) time.Duration {
	switch {
	case next == Unknown:
		return max(holdOther, staleAfter*interval)
	case !h.known && next.good():
		return 0
	case !h.known || h.verdict.State.good() || h.verdict.State == Unknown:
		return holdTrouble
	}
	return holdOther
}
