package main

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"

	"github.com/auditrelay/auditrelay/internal/testbed/rig"
)

// scenario is one way to torture a relay. run returns an error if a process
// did not behave, or a *skip.
type scenario struct {
	name, about string
	run         func(ctx context.Context, t *trial) error
	// beside makes it run along with the following ones, because it mostly waits, and they
	// measure no rates.
	beside bool
}

// clockScenario needs a relay of its own build.
const clockScenario = "clock"

// scenarios returns all scenarios. Those that measure rates come first, each by itself.
func scenarios() []scenario {
	return []scenario{
		{name: "kill9", about: "kill -9 at random moments under load", run: killed},
		{name: "outage", about: "a sink is gone, while the others go on", run: outage},
		{name: "mute", about: "a sink that accepts and never answers", run: mute},
		{name: "late", about: "a sink that answers after the timeout", run: late},
		{name: "slowclients", about: "10,000 connections that send one byte a second", run: slowClients},
		{name: "strangers", about: "800 connections of no use to a relay that may open 300 files", run: strangers},
		{name: clockScenario, about: "the clock jumps by an hour", run: clockJumps, beside: true},
		{name: "leaderless", about: "the server that leads the sinks' positions is killed shortly before a trim", run: leaderless, beside: true},
		{name: "budget", about: "a small budget is spent, by delivered events and by one environment's flood", run: spentBudget},
		{name: "coldstart", about: "a large backlog, a kill under load, and a start with an empty page cache", run: coldStart},
		{name: "restarts", about: "ten restarts while a sink is gone", run: restarts},
		{name: "reloads", about: "the configuration is edited under load, twice as often as --rounds", run: reloaded},
		{name: "upgrades", about: "the process is replaced under load, half as often as --rounds, and no connection is refused", run: upgraded},
		{name: "diskfull", about: "no space left: during ingest, delivery, and at the start", run: diskFull},
		{name: "faultfs", about: "writes, fsyncs, renames and unlinks that fail below the relay", run: faultFS},
		{name: "rolls", about: "a new segment of the journal that cannot be made", run: failedRolls},
		{name: "shortwrites", about: "writes that are cut short, and then fail", run: shortWrites},
		{name: "powercuts", about: "power cuts, at each of which all is gone that was not synced", run: powerCuts},
		{name: "recovery", about: "kill -9 in the middle of a recovery, again and again", run: killedInRecovery},
		{name: "damage", about: "torn ends and flipped bits in the files of a killed relay", run: damaged},
		{name: "faults", about: "random faults in the files of a killed relay, one at a time", run: randomFaults},
		{name: "rollback", about: "an external journal comes back without its newest records", run: rolledBack},
		{name: "shutdown", about: "SIGTERM under load", run: shutdown},
		{name: "giants", about: "200 pushes of the maximum size at once", run: giants},
		{name: "hostile", about: "pushes that fill letters, imitate the trail, take its ids, repeat themselves, and come from the future", run: hostile},
		{name: "migrate", about: "a migration is killed, throttled, and loses answers", run: migrated},
		{name: "bombs", about: "pushes that are small to send and large to decode", run: bombed},
	}
}

// choose returns the scenarios with the names, or all.
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

// trial is one run of a scenario.
type trial struct {
	flags
	dir   string // of its own
	out   io.Writer
	clock *rig.ClockBuild // nil unless a chosen scenario needs it
	row   row
}

// random draws the scenario's faults.
func (t *trial) random() *rand.Rand {
	salt := uint64(0)
	for _, c := range t.row.name {
		salt = 31*salt + uint64(c)
	}
	return rand.New(rand.NewPCG(t.seed, salt))
}

// remark adds to the table's row.
func (t *trial) remark(format string, args ...any) {
	t.row.remarks = append(t.row.remarks, fmt.Sprintf(format, args...))
}

// progress tells how far it is.
func (t *trial) progress(format string, args ...any) {
	fmt.Fprintf(t.out, "  "+t.row.name+": "+format+"\n", args...)
}
