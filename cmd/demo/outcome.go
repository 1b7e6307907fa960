package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/auditrelay/auditrelay/internal/retry"
	"github.com/auditrelay/auditrelay/internal/testbed/workspacesim"
)

const (
	// patience bounds the wait for events on their way.
	patience = 90 * time.Second
	// settle is the pause between two looks.
	settle = 250 * time.Millisecond
)

// outcome compares the destinations with the events sent.
type outcome struct {
	Generated    uint64               `json:"generated"`
	Acknowledged uint64               `json:"acknowledged"`
	Delivered    map[string]delivered `json:"delivered"`
	// Lost counts missing acknowledged events, over all destinations.
	Lost int64 `json:"lost"`
	// ChangesSeen counts the changes present at every destination.
	ChangesMade int     `json:"settings_changes_made"`
	ChangesSeen int     `json:"settings_changes_seen"`
	WallSeconds float64 `json:"wall_seconds"`

	order []string // the destinations' names
	ended error    // errors while the relay ended
}

// delivered counts one destination's events.
type delivered struct {
	Unique     int64 `json:"unique"` // distinct events of the event log
	Duplicates int64 `json:"duplicates"`
	Lost       int64 `json:"lost"`
	Audit      int64 `json:"audit_events"` // distinct events of the relay's own
}

// finish stops the events, waits until the destinations have all, and counts.
func (s *stage) finish(ctx context.Context) (*outcome, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	s.sim.Pause()
	if err := s.sim.Wait(ctx); err != nil {
		return nil, err
	}
	var o *outcome
	for {
		err := s.waitForCounts(ctx)
		if err == nil {
			o, err = s.count(ctx)
		}
		if err != nil {
			return nil, fmt.Errorf("read the destinations back: %w", err)
		}
		if o.complete() || retry.Sleep(ctx, settle) != nil {
			break
		}
	}
	err := s.stopRelay()
	s.stopRelay = nil
	o.ended = err
	return o, nil
}

// waitForCounts waits until each destination has at least as many records as events were
// acknowledged. It is no error if some are missing in time, since the count shows them.
func (s *stage) waitForCounts(ctx context.Context) error {
	want := int64(s.sim.Counts().Acknowledged)
	for _, d := range s.destinations() {
		for {
			n, err := d.Count(ctx)
			if err != nil && ctx.Err() == nil {
				return fmt.Errorf("%s: %w", d.Name(), err)
			}
			if n >= want || retry.Sleep(ctx, settle) != nil {
				break
			}
		}
	}
	return nil
}

// count reads every destination back from its start.
func (s *stage) count(ctx context.Context) (*outcome, error) {
	counts, changes := s.sim.Counts(), s.sim.Changes()
	o := &outcome{
		Generated: counts.Generated, Acknowledged: counts.Acknowledged,
		Delivered: map[string]delivered{}, ChangesMade: len(changes), ChangesSeen: len(changes),
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	for _, d := range s.destinations() {
		t := newTally()
		if err := d.Read(ctx, t.add); err != nil {
			return nil, fmt.Errorf("%s: %w", d.Name(), err)
		}
		sum := delivered{
			Unique: t.events.Unique, Duplicates: t.events.Duplicates + t.again,
			Audit: int64(len(t.audit)), Lost: t.events.Missing(s.sim.Ledgers()),
		}
		o.Delivered[d.Name()], o.order = sum, append(o.order, d.Name())
		o.Lost += sum.Lost
		o.ChangesSeen = min(o.ChangesSeen, t.changesSeen(changes))
	}
	return o, nil
}

func (o *outcome) complete() bool { return o.Lost == 0 && o.ChangesSeen == o.ChangesMade }

// verdict is an error where anything was lost or missed.
func (o *outcome) verdict() error {
	var failed []error
	if o.Lost > 0 {
		failed = append(failed, fmt.Errorf("%d acknowledged events are missing", o.Lost))
	}
	if o.ChangesSeen < o.ChangesMade {
		failed = append(failed, fmt.Errorf("%d of %d changes of settings are missing", o.ChangesMade-o.ChangesSeen, o.ChangesMade))
	}
	if o.ended != nil {
		failed = append(failed, fmt.Errorf("stop the relay: %w", o.ended))
	}
	return errors.Join(failed...)
}

func (o *outcome) table() string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 3, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "destination\tevents\tduplicates\tlost\taudit events\t")
	for _, name := range o.order {
		d := o.Delivered[name]
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%d\t\n", name, d.Unique, d.Duplicates, d.Lost, d.Audit)
	}
	_ = w.Flush() // to a strings.Builder
	return fmt.Sprintf("\nGenerated %d, acknowledged %d events in %.1f s.\nSettings changed %d times, seen %d times.\n\n%s\n",
		o.Generated, o.Acknowledged, o.WallSeconds, o.ChangesMade, o.ChangesSeen, b.String())
}

func (o *outcome) write(file string) error {
	text, err := json.MarshalIndent(o, "", "  ")
	if err != nil {
		return fmt.Errorf("encode the report: %w", err)
	}
	return os.WriteFile(file, append(text, '\n'), 0o644)
}

// tally counts one destination's events, by event id.
type tally struct {
	events  workspacesim.Tally
	audit   map[string]bool // ids of the relay's own events
	again   int64           // of earlier ones
	changes map[place]int   // distinct "settings.changed" events
}

// place is where a setting belongs.
type place struct{ project, environment, resource string }

func newTally() *tally { return &tally{audit: map[string]bool{}, changes: map[place]int{}} }

// add counts one record. Any other id than the event log's is the relay's own.
func (t *tally) add(id string, body []byte) {
	if t.events.Add(id) {
		return
	}
	if t.audit[id] {
		t.again++
		return
	}
	t.audit[id] = true
	var e struct{ Type, Project, Environment, Subject string }
	if json.Unmarshal(body, &e) == nil && e.Type == "settings.changed" {
		t.changes[place{e.Project, e.Environment, e.Subject}]++
	}
}

// changesSeen counts the changes with an event.
func (t *tally) changesSeen(made []workspacesim.Change) (n int) {
	left := maps.Clone(t.changes)
	for _, c := range made {
		if p := (place{c.Project, c.Environment, c.Resource}); left[p] > 0 {
			left[p]--
			n++
		}
	}
	return n
}
