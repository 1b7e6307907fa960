package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/auditrelay/auditrelay/internal/retry"
	"github.com/auditrelay/auditrelay/internal/testbed/rig"
	"github.com/auditrelay/auditrelay/internal/testbed/workspacesim"
)

// starting bounds a relay's start. On an external journal it makes its streams
// first, and a cluster elects leaders for each.
const starting = 5 * time.Minute

// report is the time between two lines of progress.
const report = 5 * time.Second

// playing is one run: a relay, its load, and the places it delivers to.
type playing struct {
	*session
	name      string // for the table
	tag       string // tells this run's events, and streams, from another's
	kills     int
	places    []*place
	relay     *rig.Relay
	config    string // the relay's
	rivals    []*rival
	workspace *rig.Workspace
	start     time.Time // of the load
	remarks   map[*place][]string
	wrong     map[*place][]string
}

// play runs a relay in front of the places, with nodes killed this often, and returns a row for
// each of their targets.
func (s *session) play(ctx context.Context, places []*place, kills int) []row {
	p := &playing{
		session: s, name: "calm", tag: fmt.Sprintf("run%d", len(s.rows)), kills: kills, places: places,
		remarks: map[*place][]string{}, wrong: map[*place][]string{},
	}
	switch {
	case places[0].ordeal != nil:
		p.name = places[0].ordeal.name
	case kills > 0:
		p.name = "node killed"
	}
	s.say("%s, %s: %.0f events/s for %s …", strings.Join(p.sinkNames(), ", "), p.name, s.rate, s.load)
	start := time.Now()
	rows, err := p.run(ctx)
	switch {
	case err != nil && ctx.Err() != nil:
		rows = append(rows, row{name: p.sinkNames()[0] + ", " + p.name, skipped: "cut off"})
	case err != nil:
		s.say("WRONG %s: %v", p.name, err)
		rows = append(rows, row{name: "relay of " + p.sinkNames()[0], run: p.name, wrong: []string{err.Error()}, took: time.Since(start)})
	}
	return rows
}

func (p *playing) sinkNames() (names []string) {
	for _, place := range p.places {
		for _, t := range place.targets {
			names = append(names, t.name)
		}
	}
	return names
}

// run plays it. Its error is about the relay; those of places are in their rows.
func (p *playing) run(ctx context.Context) ([]row, error) {
	if err := p.startRelay(ctx); err != nil {
		return nil, err
	}
	defer p.workspace.Close()
	defer p.relay.Close()
	defer func() {
		for _, r := range p.rivals {
			r.Close()
		}
	}()
	if err := p.underLoad(ctx); err != nil {
		return nil, err
	}
	if err := p.drain(ctx); err != nil {
		return nil, err
	}
	rows := p.readBack(ctx)
	return rows, p.relay.Process().Stop(time.Minute)
}

// startRelay starts the workspace and the relay in front of the places.
func (p *playing) startRelay(ctx context.Context) (err error) {
	if p.relay, err = rig.NewRelay(ctx, p.binary, p.folder("relay-"+p.tag)); err != nil {
		return err
	}
	p.workspace, err = rig.StartWorkspace(ctx, workspacesim.Options{
		Run: p.tag, Projects: 1, RetryMax: 200 * time.Millisecond, PushEvents: 100, QueueEvents: 5_000_000,
	})
	if err != nil {
		return err
	}
	p.config = fmt.Sprintf("data_dir: %q\n", p.relay.DataDir()) + p.workspace.Config(p.relay.Ingest, p.relay.Admin) + p.sections()
	if err := p.relay.Start(ctx, p.config, starting, p.workspace.Env()); err != nil {
		p.relay.Close()
		p.workspace.Close()
		return err
	}
	return nil
}

// sections are the journal and the sinks of the relay's configuration.
func (p *playing) sections() string {
	if o := p.places[0].ordeal; o != nil && o.rivals {
		return p.journalSection()
	}
	return p.journalSection() + p.sinkSections()
}

func (p *playing) journalSection() string {
	var b strings.Builder
	for _, place := range p.places {
		if place.journal != nil {
			b.WriteString(place.journal(p.tag))
		}
	}
	return b.String()
}

func (p *playing) sinkSections() string {
	var b strings.Builder
	b.WriteString("sinks:\n")
	for _, place := range p.places {
		for _, t := range place.targets {
			fmt.Fprintf(&b, "  - {name: %s, timeout: 10s, %s}\n", t.sink, t.section)
		}
	}
	return b.String()
}

// underLoad lets events flow, and has the outages meanwhile, evenly over time.
func (p *playing) underLoad(ctx context.Context) error {
	if err := p.workspace.SetTotalRate(p.rate); err != nil {
		return err
	}
	// The load counts from the first acknowledgement: the relay has told the
	// environments where to stream to.
	if err := rig.Until(ctx, starting, "the first push is acknowledged", func() bool {
		return p.workspace.Counts().Acknowledged > 0
	}, p.relay.Process()); err != nil {
		return err
	}
	p.start = time.Now()
	if o := p.places[0].ordeal; o != nil {
		return o.run(ctx, p)
	}
	for i := range p.kills {
		if err := p.hold(ctx, p.load*time.Duration(i+1)/time.Duration(p.kills+1)); err != nil {
			return err
		}
		if err := p.strike(ctx); err != nil {
			return err
		}
	}
	return p.hold(ctx, p.load)
}

// killRelay kills the relay again and again, at random moments after it was ready.
func killRelay(ctx context.Context, p *playing) error {
	const within = time.Second
	for i := range p.kills {
		if err := retry.Sleep(ctx, rand.N(within)); err != nil {
			return err
		}
		if p.relay.Process().Ended() {
			return p.relay.Process().Unexpected()
		}
		p.relay.Process().Kill()
		if err := p.relay.Start(ctx, p.config, starting, p.workspace.Env()); err != nil {
			return fmt.Errorf("after %d kills: %w", i+1, err)
		}
		if i%20 == 19 {
			p.say("  killed %d times", i+1)
			p.progress()
		}
	}
	p.remarks[p.places[0]] = append(p.remarks[p.places[0]], fmt.Sprintf("killed %d times", p.kills))
	return nil
}

// hold lets the load go on until so long after its start.
func (p *playing) hold(ctx context.Context, until time.Duration) error {
	for {
		left := until - time.Since(p.start)
		if left <= 0 {
			return nil
		}
		if err := retry.Sleep(ctx, min(left, report)); err != nil {
			return err
		}
		if p.relay.Process().Ended() {
			return p.relay.Process().Unexpected()
		}
		p.progress()
	}
}

func (p *playing) progress() {
	counts := p.workspace.Counts()
	p.say("  %3.0fs: %d events acknowledged, %d under way", time.Since(p.start).Seconds(), counts.Acknowledged, counts.InFlight)
}

// strike kills one node of each place with several, all at once, and starts them again.
// A failure there is the place's own fault, and ends nothing.
func (p *playing) strike(ctx context.Context) error {
	var down []*place
	for _, place := range p.places {
		if place.outage == nil {
			continue
		}
		what, err := place.outage.kill(ctx)
		if err != nil {
			p.fault(place, err)
			continue
		}
		down = append(down, place)
		remark := fmt.Sprintf("%s killed at %.0fs for %s", what, time.Since(p.start).Seconds(), p.down)
		p.remarks[place] = append(p.remarks[place], remark)
		p.say("  %s", remark)
	}
	if err := p.hold(ctx, time.Since(p.start)+p.down); err != nil {
		return err
	}
	p.heal(ctx, down)
	return ctx.Err()
}

// heal starts the dead nodes again, all at once, since each takes its time.
func (p *playing) heal(ctx context.Context, down []*place) {
	errs := make([]error, len(down))
	var healing sync.WaitGroup
	for i, place := range down {
		healing.Go(func() { errs[i] = place.outage.heal(ctx) })
	}
	healing.Wait()
	for i, place := range down {
		if errs[i] != nil && ctx.Err() == nil {
			p.fault(place, errs[i])
		}
	}
	if len(down) > 0 {
		p.say("  all are whole again at %.0fs", time.Since(p.start).Seconds())
	}
}

// fault records a place's misbehaviour, with the end of its logs.
func (p *playing) fault(place *place, err error) {
	text := err.Error()
	if place.tails != nil {
		text += "\n" + place.tails()
	}
	p.say("WRONG %s: %s", place.targets[0].name, text)
	p.wrong[place] = append(p.wrong[place], text)
}

// drain stops the events, and waits until those under way are acknowledged.
func (p *playing) drain(ctx context.Context) error {
	p.workspace.Pause()
	start, said := time.Now(), time.Now()
	for left := p.workspace.Counts().InFlight; left > 0; left = p.workspace.Counts().InFlight {
		if err := rig.Until(ctx, p.patience, "more pushes are acknowledged", func() bool {
			if time.Since(said) > report {
				said = time.Now()
				p.progress()
			}
			return p.workspace.Counts().InFlight != left
		}, p.relay.Process()); err != nil {
			return err
		}
	}
	p.say("  %d events acknowledged, the last after %.0fs; reading back …", p.workspace.Counts().Acknowledged, time.Since(start).Seconds())
	return nil
}

// readBack waits for each target to have everything, and counts.
func (p *playing) readBack(ctx context.Context) (rows []row) {
	ledgers := p.workspace.Ledgers()
	for _, place := range p.places {
		for _, t := range place.targets {
			r := row{name: t.name, run: p.name, remarks: slices.Clone(p.remarks[place]), wrong: slices.Clone(p.wrong[place])}
			tally, err := p.arrived(ctx, t, ledgers)
			r.took = time.Since(p.start)
			if err != nil {
				p.fault(place, fmt.Errorf("it cannot be read back: %w", err))
				rows = append(rows, row{name: t.name, run: p.name, wrong: p.wrong[place], took: r.took})
				continue // missing events are not known to be lost
			}
			r.count(tally, ledgers)
			if t.once && r.duplicates > 0 {
				r.wrong = append(r.wrong, fmt.Sprintf("%d events are there more than once", r.duplicates))
			}
			if t.faults != nil {
				r.wrong = append(r.wrong, t.faults()...)
			}
			if r.lost > 0 {
				p.say("LOST %d events at %s; the relay said: %s", r.lost, t.name, p.relay.Process().Tail())
				if place.tails != nil {
					p.say("%s", place.tails())
				}
			}
			rows = append(rows, r)
		}
	}
	return rows
}

// arrived reads a target again and again until nothing is missing, or nothing new has come for
// as long as a target may take; then the tally names the missing ones. A target that cannot be
// read may be readable a little later, so an error counts only at the end.
func (p *playing) arrived(ctx context.Context, t target, ledgers []workspacesim.Ledger) (workspacesim.Tally, error) {
	said, most, moved := time.Now(), int64(-1), time.Now()
	for {
		reading, cancel := context.WithTimeout(ctx, 3*time.Minute) // a busy machine reads Loki slowly
		tally, err := tallyOf(reading, t, ledgers)
		cancel()
		missing := tally.Missing(ledgers)
		if err == nil && missing == 0 {
			return tally, nil
		}
		if tally.Unique > most {
			most, moved = tally.Unique, time.Now()
		}
		if time.Since(moved) > p.patience || p.relay.Process().Ended() {
			return tally, err
		}
		if time.Since(said) > report {
			said = time.Now()
			p.say("  %s: %d events are still missing (%v)", t.name, missing, errText(err))
		}
		if retry.Sleep(ctx, time.Second) != nil {
			return tally, ctx.Err()
		}
	}
}

func errText(err error) string {
	if err == nil {
		return "it can be read"
	}
	return err.Error()
}
