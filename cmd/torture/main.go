// Command torture drives the real relay, as processes, under load and faults: kills,
// outages of sinks, full and failing disks, damaged files, clock jumps, hostile
// clients. It compares, by event id, the acknowledged events with those read back at
// the sinks, and prints its findings in a table.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/auditrelay/auditrelay/internal/testbed/rig"
)

// flags are the command's.
type flags struct {
	binary string
	only   []string
	rounds int
	seed   uint64
	total  time.Duration
	long   bool
	rate   float64
	keep   bool
	// coldstart's initial backlog, in MiB
	backlog int
	faults  int
	rows    int // of the scenario migrate
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	if err := newCommand().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "torture:", err)
		if errors.Is(err, errFound) {
			os.Exit(1)
		}
		os.Exit(2)
	}
}

func newCommand() *cobra.Command {
	f := flags{seed: uint64(time.Now().UnixNano())}
	var names []string
	for _, s := range scenarios() {
		names = append(names, s.name)
	}
	cmd := &cobra.Command{
		Use:   "torture",
		Short: "Kill, starve and cut off the relay, and count what is lost",
		Long: `Runs the relay's binary as processes under load and faults, reads the sinks back,
and counts by event id what was acknowledged and did not arrive. What cannot be
done on this machine is skipped, and said so.

Scenarios: ` + strings.Join(names, ", ") + `.

Exit codes: 0 nothing lost and every process behaved, 1 otherwise, 2 wrong usage.`,
		Example: `  torture
  torture --only kill9 --rounds 20 --seed 42
  torture --only outage --long
  torture --only coldstart --backlog 10240
  torture --only migrate --rows 20000
  torture --only faults --faults 1000 --for 1h`,
		Args:         cobra.NoArgs,
		SilenceUsage: true, SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error { return run(cmd.Context(), f, os.Stdout) },
	}
	fs := cmd.Flags()
	fs.StringVar(&f.binary, "binary", "bin/auditrelay", "the relay's `file`")
	fs.StringSliceVar(&f.only, "only", nil, "run only the scenarios with these `names`")
	fs.IntVar(&f.rounds, "rounds", 100, "how `often` the relay is killed; other scenarios have a share of it")
	fs.Uint64Var(&f.seed, "seed", f.seed, "what the moments of the faults follow from (default: the time)")
	fs.DurationVar(&f.total, "for", 14*time.Minute+30*time.Second, "start no scenario after this `time`, and end those that run")
	fs.BoolVar(&f.long, "long", false, "outages of five minutes instead of 20 seconds")
	fs.Float64Var(&f.rate, "rate", 4000, "`events` a second, all environments together")
	fs.IntVar(&f.backlog, "backlog", 512, "`MiB` of undelivered events that coldstart starts with")
	fs.IntVar(&f.faults, "faults", 25, "how `many` random faults the scenario faults draws, each from the seed and its number")
	fs.IntVar(&f.rows, "rows", 2000, "how `many` rows the scenario migrate sends")
	fs.BoolVar(&f.keep, "keep", false, "keep the folder with the relay's logs")
	cmd.AddCommand(newNATSCommand())
	return cmd
}

// errFound means that something was lost, or did not behave.
var errFound = errors.New("something was lost or did not behave, see the table")

func run(ctx context.Context, f flags, out *os.File) error {
	binary, err := filepath.Abs(f.binary)
	if err != nil {
		return err
	}
	if _, err := os.Stat(binary); err != nil {
		return fmt.Errorf("find the relay: %w; build it with 'make build', or name it with --binary", err)
	}
	f.binary = binary
	chosen, err := choose(f.only)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "auditrelay-torture-")
	if err != nil {
		return err
	}
	if f.keep {
		fmt.Fprintln(out, "The relay's logs are in", dir)
	} else {
		defer func() { _ = os.RemoveAll(dir) }()
	}
	fmt.Fprintf(out, "seed %d: 'torture --seed %d' draws the same moments again\n", f.seed, f.seed)
	timed, cancel := context.WithTimeout(ctx, f.total)
	defer cancel()
	var clock *rig.ClockBuild
	if slices.ContainsFunc(chosen, func(s scenario) bool { return s.name == clockScenario }) {
		clock = rig.BuildWithClock(timed, dir)
	}
	rows := playAll(timed, chosen, func(name string) *trial {
		return &trial{flags: f, dir: filepath.Join(dir, name), out: out, clock: clock, row: row{name: name}}
	})
	fmt.Fprint(out, table(rows))
	if found(rows) {
		return errFound
	}
	return ctx.Err()
}

// playAll runs the scenarios one after the other, except those that run along with others.
func playAll(ctx context.Context, chosen []scenario, prepare func(name string) *trial) []row {
	rows := make([]row, len(chosen))
	var beside sync.WaitGroup
	for i, s := range chosen {
		one := func() { rows[i] = play(ctx, s, prepare(s.name)) }
		if s.beside {
			beside.Go(one)
		} else {
			one()
		}
	}
	beside.Wait()
	return rows
}

// play runs one scenario.
func play(ctx context.Context, s scenario, t *trial) row {
	if ctx.Err() != nil {
		return row{name: s.name, skipped: "no time left: see --for"}
	}
	fmt.Fprintf(t.out, "%s: %s …\n", s.name, s.about)
	start := time.Now()
	err := os.Mkdir(t.dir, 0o700)
	if err == nil {
		err = s.run(ctx, t)
	}
	var skipped *skip
	switch {
	case errors.As(err, &skipped):
		t.row.skipped = skipped.reason
		fmt.Fprintf(t.out, "SKIPPED %s: %s\n", s.name, skipped.reason)
	case err != nil && ctx.Err() != nil:
		t.row.skipped = "cut off: no time left, see --for"
	case err != nil:
		t.row.wrong = append(t.row.wrong, err.Error())
		fmt.Fprintf(t.out, "WRONG %s: %v\n", s.name, err)
	}
	t.row.took = time.Since(start)
	return t.row
}
