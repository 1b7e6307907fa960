// Command demo shows the relay at work, on loopback and on ports that it chooses: a simulated
// workspace streams event logs and plays a story, the relay keeps them, and a webhook and a file
// receive them. Its figures are counted at those two, not by the relay.
//
// It links no server of a destination, since half of the time of a first `make demo` went into
// compiling nats-server and a stand-in for Kafka. `make integration` runs real ones.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"
)

type flags struct {
	duration    time.Duration
	rate        float64
	report      string
	changeEvery time.Duration
	seed        uint64
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	if err := newCommand().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

func newCommand() *cobra.Command {
	var f flags
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "See a workspace's event log and settings pass through the relay",
		Long: `Runs a simulated workspace, the relay with its console in the browser, and two
destinations (a webhook and a file) in one process on loopback, and shows what
happens until Ctrl-C or --for. A third destination is down. Then it waits until the
others have everything, reads them back, and says whether anything is missing.
Exit codes: 0 nothing lost, 1 otherwise.`,
		Example: `  demo
  demo --for 20s --rate 5000 --report out.json`,
		Args:         cobra.NoArgs,
		SilenceUsage: true, SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error { return run(cmd.Context(), f, os.Stdout) },
	}
	fs := cmd.Flags()
	fs.DurationVar(&f.duration, "for", 0, "end after this `time`; 0 runs until Ctrl-C")
	fs.Float64Var(&f.rate, "rate", 500, "`events` a second, all environments together")
	fs.StringVar(&f.report, "report", "", "write the outcome as JSON to this `file`")
	fs.DurationVar(&f.changeEvery, "change-every", 10*time.Second, "`time` between two changes of a setting after the story; 0 makes none")
	fs.Uint64Var(&f.seed, "seed", 1, "seed of the workspace and its events")
	return cmd
}

// afterwards says how to do the same in earnest.
const afterwards = `The same against a workspace of yours:

  make build && bin/auditrelay config init relay.yaml

It asks for the workspace, your environments and destinations, and writes relay.yaml.
`

// run plays the demo once.
func run(ctx context.Context, f flags, out *os.File) error {
	s, err := setStage(ctx, f)
	if err != nil {
		return err
	}
	defer s.close()
	fmt.Fprint(out, s.describe())
	playing, cancel := context.WithCancel(ctx)
	if f.duration > 0 {
		playing, cancel = context.WithTimeout(ctx, f.duration)
	}
	defer cancel()
	start := time.Now()
	watch(playing, s, out)
	fmt.Fprintln(out, "Ending: waiting until the destinations have everything.")
	outcome, err := s.finish(context.WithoutCancel(ctx))
	if err != nil {
		return err
	}
	outcome.WallSeconds = time.Since(start).Seconds()
	fmt.Fprint(out, outcome.table())
	if f.report != "" {
		if err := outcome.write(f.report); err != nil {
			return err
		}
	}
	fmt.Fprint(out, afterwards)
	return outcome.verdict()
}
