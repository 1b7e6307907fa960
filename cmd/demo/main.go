// Command demo shows the relay at work, on loopback and on ports that it chooses: a simulated
// workspace streams event logs and changes its settings, the relay keeps them, and Kafka, NATS
// and a file receive them. Its figures are counted at those three, not by the relay.
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
	kafka       string
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
		Long: `Runs a simulated workspace, the relay, and three destinations (Kafka, NATS and a
file) in one process on loopback, and shows what happens until Ctrl-C or --for.
Then it waits until the destinations have everything, reads them back, and says
whether anything is missing. Exit codes: 0 nothing lost, 1 otherwise.`,
		Example: `  demo
  demo --for 20s --rate 5000 --report out.json
  demo --kafka 127.0.0.1:9092`,
		Args:         cobra.NoArgs,
		SilenceUsage: true, SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error { return run(cmd.Context(), f, os.Stdout) },
	}
	fs := cmd.Flags()
	fs.DurationVar(&f.duration, "for", 0, "end after this `time`; 0 runs until Ctrl-C")
	fs.Float64Var(&f.rate, "rate", 500, "`events` a second, all environments together")
	fs.StringVar(&f.report, "report", "", "write the outcome as JSON to this `file`")
	fs.StringVar(&f.kafka, "kafka", "", "`HOST:PORT` of a real Kafka broker; without it a stand-in runs in the process")
	fs.DurationVar(&f.changeEvery, "change-every", 2*time.Second, "`time` between two changes of a setting; 0 makes none")
	fs.Uint64Var(&f.seed, "seed", 1, "seed of the workspace and its events")
	return cmd
}

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
	return outcome.verdict()
}
