package main

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
)

// scenario is one way to torture a relay. run returns an error where a process
// did not behave, or a *skip.
type scenario struct {
	name, about string
	run         func(ctx context.Context, t *trial) error
}

// scenarios are all, the most important first.
func scenarios() []scenario {
	return []scenario{
		{"kill9", "kill -9 at random moments under load", killed},
		{"outage", "a sink is gone, while the others go on", outage},
		{"restarts", "ten restarts while a sink is gone", restarts},
		{"mute", "a sink that accepts and never answers", mute},
		{"late", "a sink that answers after the timeout", late},
		{"diskfull", "no space left: during ingest, delivery, and at the start", diskFull},
		{"faultfs", "writes and fsyncs that fail below the relay", faultFS},
		{"shutdown", "SIGTERM under load", shutdown},
		{"slowclients", "10,000 connections that send one byte a second", slowClients},
		{"giants", "200 pushes of the maximum size at once", giants},
		{"clock", "the clock jumps by an hour", clockJumps},
	}
}

// choose gives the scenarios with the names, or all.
func choose(names []string) ([]scenario, error) {
	all := scenarios()
	if len(names) == 0 {
		return all, nil
	}
	var chosen []scenario
	for _, name := range names {
		i := slices.IndexFunc(all, func(s scenario) bool { return s.name == name })
		if i < 0 {
			return nil, fmt.Errorf("--only: there is no scenario %q, see --help", name)
		}
		chosen = append(chosen, all[i])
	}
	return chosen, nil
}

// skip ends a scenario that cannot be played here.
type skip struct{ reason string }

func (s *skip) Error() string { return s.reason }

// trial is one scenario that is played.
type trial struct {
	flags
	dir string // of its own
	out io.Writer
	row row
}

// random draws what the scenario's faults follow from.
func (t *trial) random() *rand.Rand {
	salt := uint64(0)
	for _, c := range t.row.name {
		salt = 31*salt + uint64(c)
	}
	return rand.New(rand.NewPCG(t.seed, salt))
}

// remark adds to what the table says.
func (t *trial) remark(format string, args ...any) {
	t.row.remarks = append(t.row.remarks, fmt.Sprintf(format, args...))
}

// progress tells how far it is.
func (t *trial) progress(format string, args ...any) {
	fmt.Fprintf(t.out, "  "+format+"\n", args...)
}
