package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"
)

// incident is a fault, and the report due for it.
type incident struct {
	name     string
	expected string // as reported returns it
	setup    setup
	// reported reads the report in question out of the status.
	reported func(*status) string
	// cause makes it go wrong, and mend right again; it is nil if the relay itself corrects it.
	cause, mend func(context.Context, *stage) error
	// lasts is how long it goes on after it was noticed.
	lasts time.Duration
	// never is set if it must not be reported as anything but healthy for as long as lasts.
	never bool
	// killed is set if the relay is killed at the end.
	killed bool
	// counts is set if the estimate of lost events is compared with the truth.
	counts bool
	// causes are those of the gaps at the end, in their order; if nil, they are not compared.
	causes []string
	// most is the most events that may be lost; 0 for any number.
	most int64
	// alerts fire over the metrics in it, alertsAfter over those that follow it.
	alerts, alertsAfter []string
}

// outcome is how an incident went.
type outcome struct {
	incident
	err              error
	saw              string
	noticed          time.Duration
	estimated, truth int64
	bounded          bool // the truth lies within the bounds of the estimate
	sawCauses        []string
	during, after    []scrape
	first            *outcome // with a wrong report; nil if this one is the first
}

// play plays the incident, and records why it could not be played.
func (o *outcome) play(ctx context.Context, binary, dir string) {
	o.err = o.scenes(ctx, binary, dir)
}

// scenes are its health, its fault, its report, and its end.
func (o *outcome) scenes(ctx context.Context, binary, dir string) error {
	s, err := newStage(ctx, binary, dir, o.setup)
	if s != nil {
		defer s.end()
	}
	if err != nil {
		return err
	}
	if err := s.start(ctx); err != nil {
		return err
	}
	if err := s.healthy(ctx); err != nil {
		return err
	}
	before := s.lost()
	first := s.scrape(ctx)
	began := time.Now()
	if err := o.cause(ctx, s); err != nil {
		return err
	}
	if o.never {
		return o.calm(ctx, s)
	}
	if err := s.until(ctx, "it is reported: "+o.expected, o.met); err != nil {
		return err
	}
	o.noticed = time.Since(began)
	if err := hold(ctx, o.lasts); err != nil {
		return err
	}
	o.during = []scrape{first, s.scrape(ctx)}
	if o.killed {
		s.relay.Close()
		o.after = []scrape{first, s.scrape(ctx)}
		return nil
	}
	return o.recover(ctx, s, before)
}

func (o *outcome) met(st *status) bool {
	o.saw = o.reported(st)
	return o.saw == o.expected
}

// calm fails at the first report of trouble.
func (o *outcome) calm(ctx context.Context, s *stage) error {
	for began := time.Now(); time.Since(began) < o.lasts; {
		st, err := s.status(ctx)
		if err != nil {
			return err
		}
		if !o.met(&st) {
			return fmt.Errorf("after %s it reports %s: %s", time.Since(began).Round(time.Second), o.saw, st.one().Reason)
		}
		if err := hold(ctx, 200*time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}

// For the time settled after a gap, late events lower its estimate.
const settled = 65 * time.Second

// recover mends it, waits until all is well, and compares the losses.
func (o *outcome) recover(ctx context.Context, s *stage, before int64) error {
	if o.mend != nil {
		if err := o.mend(ctx, s); err != nil {
			return err
		}
		well := func(st *status) bool {
			return st.arrives() && (o.reported(st) != o.expected || o.expected == "flowing")
		}
		if err := s.until(ctx, "all is well again", well); err != nil {
			return err
		}
	}
	if !o.counts {
		return nil
	}
	if err := s.until(ctx, "the gap has ended", func(st *status) bool { return len(st.one().Gaps) > 0 && st.arrives() }); err != nil {
		return err
	}
	if err := hold(ctx, settled); err != nil {
		return err
	}
	st, err := s.status(ctx)
	if err != nil {
		return err
	}
	least, most := 0., 0.
	for _, g := range st.one().Gaps {
		o.estimated, least, most = o.estimated+int64(math.Round(g.EventsLost)), least+g.EventsLostLeast, most+g.EventsLostMost
		o.sawCauses = append(o.sawCauses, g.Cause)
	}
	o.truth = s.lost() - before
	o.bounded = least <= float64(o.truth) && float64(o.truth) <= most
	o.after = []scrape{o.during[0], s.scrape(ctx)}
	return nil
}

// few is the error of an estimate of few events.
const few = 8

// right reports whether it was reported as it was. An estimate may be off by a quarter, or by a
// few events.
func (o *outcome) right() bool {
	return o.err == nil && o.saw == o.expected && (o.most == 0 || o.truth <= o.most) &&
		(o.causes == nil || slices.Equal(o.causes, o.sawCauses)) &&
		(!o.counts || o.bounded && math.Abs(float64(o.estimated-o.truth)) <= math.Max(few, float64(o.truth)/4))
}

// explain names the faults of the report.
func (o *outcome) explain() string {
	text := fmt.Sprintf("%s: expected %q, reported %q", o.name, o.expected, o.saw)
	if o.counts {
		text += fmt.Sprintf(", estimated %d of %d lost events (within its bounds: %v), by %v", o.estimated, o.truth, o.bounded, o.sawCauses)
	}
	if o.most > 0 && o.truth > o.most {
		text += fmt.Sprintf(", more than %d lost", o.most)
	}
	if o.err != nil {
		text += ": " + o.err.Error()
	}
	return text
}

// wrong is an error with a line for each wrong report and each missing alert.
func wrong(all []*outcome, silent []string) error {
	var errs []error
	for _, o := range all {
		if !o.right() {
			errs = append(errs, fmt.Errorf("not reported as it was, twice: %s", o.explain()))
		}
	}
	for _, alert := range silent {
		errs = append(errs, fmt.Errorf("this alert did not fire: %s", alert))
	}
	return errors.Join(errs...)
}

// printTable prints a row for each incident, and below it the faults found at first.
func printTable(all []*outcome) {
	fmt.Printf("%-44s %-34s %-34s %8s %10s %10s\n", "INCIDENT", "EXPECTED", "REPORTED", "SECONDS", "ESTIMATED", "LOST")
	for _, o := range all {
		seconds, estimated, truth, note := "-", "-", "-", ""
		if o.noticed > 0 {
			seconds = fmt.Sprintf("%.1f", o.noticed.Seconds())
		}
		if o.counts {
			estimated, truth = fmt.Sprint(o.estimated), fmt.Sprint(o.truth)
		}
		if !o.right() {
			note = "  WRONG"
		}
		fmt.Printf("%-44s %-34s %-34s %8s %10s %10s%s\n", o.name, o.expected, o.saw, seconds, estimated, truth, note)
		if o.first != nil {
			fmt.Printf("    WRONG AT FIRST: %s\n", o.first.explain())
		}
	}
}
