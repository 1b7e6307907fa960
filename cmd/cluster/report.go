package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/auditrelay/auditrelay/internal/testbed/rig"
)

// row is one kind of play's outcome.
type row struct {
	rounds int
	wrong  int
	quiet  time.Duration // the longest time without a 2xx of any relay
}

// report gathers the rounds.
type report struct {
	rows  map[string]*row
	moves map[string][]time.Duration
	wrong []string
	judge *judge
}

// play plays all rounds, or measures.
func play(ctx context.Context, f flags, dir string, out io.Writer) error {
	s, err := newScene(ctx, f, dir, out)
	if err != nil {
		return err
	}
	defer s.close()
	if err := s.startRelays(ctx, len(s.relays)); err != nil {
		return err
	}
	s.supervise(ctx)
	loading, stop := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() { defer close(done); s.load.run(loading, f.rate) }()
	s.closers = append(s.closers, func() { stop(); <-done })
	if s.loopback {
		fmt.Fprintln(out, "SKIPPED in slow and several: lost packets, since proxies lose none")
	}
	if err := s.watchTable(ctx); err != nil {
		return err
	}
	if chosen, _ := choose(f.only); slices.ContainsFunc(chosen, func(a act) bool { return a.name == clockPlay }) { // they were checked
		s.clock = rig.BuildWithClock(ctx, dir)
	}
	rep := report{rows: map[string]*row{}, moves: map[string][]time.Duration{}, judge: newJudge(s)}
	s.rounds(ctx, &rep)
	stop()
	<-done
	if err := rep.judge.arrived(ctx); ctx.Err() != nil {
		fmt.Fprintln(out, "It was interrupted: events on their way count as lost.")
	} else if err != nil {
		rep.wrong = append(rep.wrong, "the end: "+err.Error())
	}
	fmt.Fprint(out, rep.table(s))
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if len(rep.wrong) > 0 {
		return errFound
	}
	return nil
}

// setUp is a round without a fault.
const setUp = "setup"

// rounds plays, and prints a line for each.
func (s *scene) rounds(ctx context.Context, rep *report) {
	all, _ := choose(s.only) // they were checked
	rng := rand.New(rand.NewPCG(s.seed, 1))
	var order []int
	began := time.Now()
	s.one(ctx, rep, 0, act{name: setUp, run: func(ctx context.Context, _ *round) error { return rep.judge.looked(ctx) }}, rng)
	for n := 1; n <= s.flags.rounds && ctx.Err() == nil && (s.lasts == 0 || time.Since(began) < s.lasts); n++ {
		if len(order) == 0 {
			order = rng.Perm(len(all))
		}
		p := all[order[0]]
		order = order[1:]
		s.one(ctx, rep, n, p, rand.New(rand.NewPCG(s.seed, uint64(n)+1)))
	}
}

// one plays one round.
func (s *scene) one(ctx context.Context, rep *report, n int, p act, rng *rand.Rand) {
	began, j := time.Now(), rep.judge
	_, before := s.load.acknowledged()
	s.load.quietest()
	s.fence.begin()
	r := &round{scene: s, rng: rng, change: j.change}
	var wrong []string
	steps := []func() error{j.change, func() error { return p.run(ctx, r) }, func() error { return r.restore(ctx) }}
	if n == 0 {
		steps = steps[1:]
	}
	for _, step := range steps {
		if err := step(); err != nil {
			wrong = append(wrong, err.Error())
		}
	}
	wrong = append(wrong, j.check(ctx, r)...)
	if ctx.Err() != nil {
		return
	}
	quiet := s.load.quietest()
	_, after := s.load.acknowledged()
	took := time.Since(began)
	rep.add(n, p.name, r.moves, quiet, wrong)
	var moves []string
	for _, m := range r.moves {
		moves = append(moves, seconds(m.took))
	}
	fmt.Fprintf(s.out, "round %d of %d: %s %s: %d events/s; moved in [%s]; longest without a 2xx %s; took %s: %s\n", n, s.flags.rounds, p.name,
		strings.Join(r.notes, ", "), int(float64(after-before)/took.Seconds()), strings.Join(moves, " "), seconds(quiet), seconds(took), verdict(wrong))
}

func verdict(wrong []string) string {
	if len(wrong) == 0 {
		return "ok"
	}
	return "WRONG: " + strings.Join(wrong, "; ")
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.1fs", d.Seconds()) }

func (rep *report) add(n int, name string, moves []move, quiet time.Duration, wrong []string) {
	if rep.rows[name] == nil {
		rep.rows[name] = &row{}
	}
	r := rep.rows[name]
	r.rounds++
	r.quiet = max(r.quiet, quiet)
	if len(wrong) > 0 {
		r.wrong++
		rep.wrong = append(rep.wrong, fmt.Sprintf("round %d, %s: %s", n, name, strings.Join(wrong, "; ")))
	}
	for _, m := range moves {
		rep.moves[m.after] = append(rep.moves[m.after], m.took)
	}
}

func (rep *report) table(s *scene) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "\nplay\trounds\twrong\tlongest without a 2xx\tabout")
	for _, p := range append([]act{{name: setUp, about: "no fault"}}, plays()...) {
		if r := rep.rows[p.name]; r != nil {
			fmt.Fprintf(w, "%s\t%d\t%d\t%s\t%s\n", p.name, r.rounds, r.wrong, seconds(r.quiet), p.about)
		}
	}
	fmt.Fprintln(w, "\njobs move after\ttimes\tmedian\tlongest\twanted\tlater")
	for _, a := range []struct {
		after  string
		within time.Duration
	}{{"kill", 5 * time.Second}, {"cut", 15 * time.Second}, {"freeze", 5 * time.Second}, {"leave", time.Second}, {"several", 0}} {
		all := rep.moves[a.after]
		if len(all) == 0 {
			continue
		}
		slices.Sort(all)
		wanted, later := "", ""
		if a.within > 0 {
			i, _ := slices.BinarySearch(all, a.within+1)
			wanted, later = a.within.String(), strconv.Itoa(len(all)-i)
		}
		fmt.Fprintf(w, "%s\t%d\t%s\t%s\t%s\t%s\n", a.after, len(all), seconds(all[len(all)/2]), seconds(all[len(all)-1]), wanted, later)
	}
	rep.fences(w)
	ledgers, events := s.load.acknowledged()
	repeated := s.load.repeated()
	fmt.Fprintln(w, "\nsink\tacknowledged\tlost\ttwice\tpushed twice, and taken twice")
	for _, name := range sinkNames {
		twice, pushed := s.sinks[name].again(repeated)
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%d\n", name, events, s.sinks[name].missing(ledgers), twice, pushed)
	}
	_ = w.Flush() // to a strings.Builder
	t := rep.judge.tally
	fmt.Fprintf(&b, "\nThe trail was verified %d times: %d forks. %d changes of settings: %d entries twice.\n", t.verified, t.forks, t.changes, rep.judge.doubled())
	if t.clocks > 0 {
		fmt.Fprintf(&b, "Of what it lacks, %d findings name the times of wrong clocks, as they should.\n", t.clocks)
	}
	fmt.Fprintf(&b, "%d PUTs of streaming configs for %d environments, at most %d in a round: %d fights.\n", s.puts.Load(), len(s.workspace.Environments()), t.puts, t.fights)
	for _, r := range s.relays {
		for _, end := range r.ends {
			fmt.Fprintf(&b, "%s ended by itself: %s\n", r.name, end)
		}
	}
	b.WriteString(counted("errors in the relays' logs", s.errorsLogged()))
	s.load.mu.Lock()
	b.WriteString(counted("pushes that were sent to another relay", s.load.refused))
	s.load.mu.Unlock()
	for _, text := range rep.wrong {
		fmt.Fprintln(&b, "WRONG in", text)
	}
	return b.String()
}

// fences says what relays have tried that others had replaced.
func (rep *report) fences(w io.Writer) {
	t := rep.judge.tally
	moves, trespass := rep.judge.fence.sum()
	fmt.Fprintln(w, "\nrelays replaced while frozen or cut off\tthat wrote something then\tpositions refused\theartbeats refused\tothers refused\tmoved by them\tof positions")
	fmt.Fprintf(w, "%d\t%d\t%d\t%d\t%d\t%d\t%d\n", t.zombies, t.zombies-t.silent, t.attempts.positions, t.attempts.beats, t.attempts.others, len(trespass), moves)
}

// counted lists texts, the most frequent first.
func counted(title string, of map[string]int) string {
	if len(of) == 0 {
		return ""
	}
	var names []string
	for name := range of {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int { return cmp.Or(of[b]-of[a], cmp.Compare(a, b)) })
	text := title + ":\n"
	for _, name := range names {
		text += fmt.Sprintf("  %d × %s\n", of[name], name)
	}
	return text
}
