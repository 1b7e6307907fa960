package streaming

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/auditrelay/auditrelay/internal/jsontext"
	"github.com/auditrelay/auditrelay/internal/trail/audit"
	"github.com/auditrelay/auditrelay/internal/workspace"
	"github.com/auditrelay/auditrelay/internal/workspace/meaning"
)

// subjectFight is the subject of the entries about fights.
const subjectFight = "event_log_streaming_fight"

// The types of these entries.
const (
	// TypeFight means that somebody else undoes the relay's PUTs again and again.
	TypeFight = "streaming.fight"
	// TypeFightEnded means that the config stayed as desired for a while.
	TypeFightEnded = "streaming.fight_ended"
)

const (
	// After fightAfter undone PUTs in a row, there is a fight.
	fightAfter = 3
	// firstTruce is the pause before the next PUT at the beginning of a fight; it doubles up
	// to lastTruce.
	firstTruce = time.Minute
	lastTruce  = time.Hour
	// stands is how long a config stays as desired before a fight is over. A PUT that is undone
	// later is not part of a fight.
	stands = time.Hour
)

// Fight describes a config that somebody else sets again and again.
type Fight struct {
	// Undone counts the relay's PUTs that were undone in a row, the first at Since.
	Undone int       `json:"undone"`
	Since  time.Time `json:"since"`
	// Theirs is the config of the others.
	Theirs *Shape `json:"theirs,omitempty"`
	// NextPut is when the relay tries again; it is zero while the config is as desired.
	NextPut time.Time `json:"next_put,omitzero"`
}

const fightAdvice = "find the person or the other relay that does it, by the changes in the trail; have one of the two observe only (mode: observe)"

// fightDetail is the Detail of the entries.
type fightDetail struct {
	workspace.Attribution
	Summary   string            `json:"summary"`
	Severity  meaning.Severity  `json:"severity"`
	Direction meaning.Direction `json:"direction"`
	Fight
	Advice string `json:"advice,omitempty"`
}

// contest is the state of a fight that is not in the trail.
type contest struct {
	judged int64 // the index of the newest PUT that was judged, from 1; 0 for none
	undone int   // the count when that PUT was judged
	since  time.Time
	known  bool // whether open is known
	open   bool // whether the trail's newest entry says that there is a fight
}

// contested counts, by the trail, the PUTs that were undone in a row. In a fight, it puts off
// the next one.
//
// The trail alternates: each PUT's entry contains the config that it set and how many PUTs
// before it were undone, and the config's newest entry shows another one. So a restart forgets
// nothing. If the process crashes before the entry about the fight, the next look makes it.
func (w *watcher) contested(ctx context.Context, shown *Shape, differs []string) error {
	newest, err := w.newestPut(ctx)
	if err != nil || !newest.found || w.contest.judged == newest.index+1 {
		return err
	}
	if err := w.knowFight(ctx); err != nil {
		return err
	}
	c := &w.contest
	if c.undone, err = w.undone(ctx, newest, shown); err != nil {
		return err
	}
	switch c.undone {
	case 0:
		c.since = time.Time{}
	case 1:
		c.since = newest.at
	default:
		c.since = newest.UndoneSince
	}
	if c.undone >= fightAfter {
		pause := truce(c.undone)
		until := newest.at.Add(pause)
		if now := time.Now(); until.After(now.Add(pause)) { // set by a clock that was ahead
			until = now.Add(pause)
		}
		w.nextPut = latest(w.nextPut, until)
		if err := w.fight(ctx, Fight{Undone: c.undone, Since: c.since, Theirs: shown, NextPut: w.nextPut}, differs); err != nil {
			return err
		}
	}
	c.judged = newest.index + 1
	return nil
}

// undone counts the PUTs that were undone in a row, up to the newest.
func (w *watcher) undone(ctx context.Context, newest lastPut, shown *Shape) (int, error) {
	ours := newest.Relay == w.host
	if newest.Sets == nil || ours && len(Plan(Desired{Shape: *newest.Sets}, shown).Differs) == 0 {
		return 0, nil // nobody undid it: something else is desired now
	}
	if newest.Outcome != workspace.OutcomeDone {
		return newest.Undone, nil
	}
	if w.contest.open {
		return newest.Undone + 1, nil
	}
	change, _, err := w.options.Recorder.Last(ctx, w.env.Project, w.env.Environment, Subject)
	if err != nil {
		return 0, fmt.Errorf("read the newest change of the streaming config: %w", err)
	}
	if change.Time.Sub(newest.at) > stands {
		return 0, nil
	}
	return newest.Undone + 1, nil
}

// truce is the pause before the next PUT after n of them were undone.
func truce(n int) time.Duration {
	return min(firstTruce<<min(n-fightAfter, 10), lastTruce)
}

func latest(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// fight reports a fight: in the log and the trail when it begins, and always in the health.
func (w *watcher) fight(ctx context.Context, f Fight, differs []string) error {
	began := w.fights(&f)
	if began {
		w.log.Warn("somebody else sets the streaming config again and again; the relay tries again at growing pauses",
			"undone", f.Undone, "since", f.Since, "fields", differs, "next_put", f.NextPut)
	}
	if w.contest.open {
		return nil
	}
	d := fightDetail{
		Attribution: workspace.Outside(), Severity: meaning.High, Direction: meaning.Unknown, Fight: f,
		Summary: fmt.Sprintf("the event log's destination was changed back %d times in a row after the relay set it", f.Undone),
		Advice:  fightAdvice,
	}
	return w.enterFight(ctx, TypeFight, d)
}

// calm ends a fight once the config has been as desired for long enough.
func (w *watcher) calm(ctx context.Context) error {
	if err := w.knowFight(ctx); err != nil || !w.contest.open {
		return err
	}
	change, found, err := w.options.Recorder.Last(ctx, w.env.Project, w.env.Environment, Subject)
	if err != nil {
		return fmt.Errorf("read the newest change of the streaming config: %w", err)
	}
	if since := time.Since(change.Time); found && since >= 0 && since < stands {
		return nil
	}
	d := fightDetail{
		Severity: meaning.Info, Direction: meaning.Neutral, Fight: w.fought(),
		Summary: "the event log's destination is no longer changed back: it stood as desired for " + stands.String(),
	}
	if err := w.enterFight(ctx, TypeFightEnded, d); err != nil {
		return err
	}
	w.fights(nil)
	w.log.Info("the fight over the streaming config is over: it stood as desired", "for", stands)
	return nil
}

// knowFight reads, once, whether the trail tells of a fight.
func (w *watcher) knowFight(ctx context.Context) error {
	if w.contest.known {
		return nil
	}
	e, found, err := w.options.Recorder.Last(ctx, w.env.Project, w.env.Environment, subjectFight)
	if err != nil {
		return fmt.Errorf("read the fights over the streaming config: %w", err)
	}
	var d fightDetail
	if w.contest.open = found && e.Type == TypeFight; w.contest.open {
		_ = json.Unmarshal(e.Detail, &d) // one that cannot be read is a fight all the same
		d.NextPut = time.Time{}
		w.fights(&d.Fight)
	}
	w.contest.known = true
	return nil
}

// enterFight appends an entry, unless the trail's newest one is of the same type.
func (w *watcher) enterFight(ctx context.Context, kind string, d fightDetail) error {
	_, err := audit.Update(ctx, w.options.Recorder, w.env.Project, w.env.Environment, subjectFight, func(last audit.Entry, found bool) (*audit.Entry, error) {
		if found && last.Type == kind {
			return nil, nil //nolint:nilnil // nothing to enter is no error
		}
		return &audit.Entry{Type: kind, Detail: jsontext.Encode(d)}, nil
	})
	if err != nil {
		return fmt.Errorf("record a fight over the streaming config: %w", err)
	}
	w.contest.open = kind == TypeFight
	return nil
}
