// Command integration runs the real relay binary against real servers: Apache Kafka, a
// NATS cluster, and others a machine can run. It compares, by event id, the
// acknowledged events with those read back at each of them, while all goes well, and
// while a node is killed and started again.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/auditrelay/auditrelay/internal/testbed/natstest"
)

// flags are the command's.
type flags struct {
	binary  string
	only    []string
	rate    float64
	load    time.Duration
	down    time.Duration
	kills   int
	brokers int

	relayKills int
	takeovers  int
	patience   time.Duration
	build      time.Duration
	cache      string
	keep       bool
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	if err := newCommand().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "integration:", err)
		os.Exit(exitCode(err))
	}
}

// exitCode tells findings from wrong usage.
func exitCode(err error) int {
	if errors.Is(err, errFound) || errors.Is(err, context.Canceled) {
		return 1
	}
	return 2
}

func newCommand() *cobra.Command {
	var f flags
	cmd := &cobra.Command{
		Use:   "integration",
		Short: "Run the relay against real servers, kill nodes, and count what is lost",
		Long: `Starts real servers on loopback and the relay's binary in front of them, loads it
over HTTP, reads the servers back, and counts by event id what was acknowledged
and did not arrive: once while all goes well, and once while a node of each
cluster is killed under load and started again. What this machine lacks is
skipped, and said so.

Kafka needs Java 17 and Maven, which fetches it.

Destinations: ` + strings.Join(names(destinations()), ", ") + `.

Exit codes: 0 nothing lost and every process behaved, 1 otherwise, 2 wrong usage.`,
		Example: `  integration
  integration --only kafka --kills 3 --load 60s
  integration --only journal --keep`,
		Args:         cobra.NoArgs,
		SilenceUsage: true, SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error { return run(cmd.Context(), f, os.Stdout) },
	}
	fs := cmd.Flags()
	fs.StringVar(&f.binary, "binary", "bin/auditrelay", "the relay's `file`")
	fs.StringSliceVar(&f.only, "only", nil, "run only the destinations with these `names`")
	fs.Float64Var(&f.rate, "rate", 3000, "`events` a second, all environments together")
	fs.DurationVar(&f.load, "load", 20*time.Second, "how `long` the load of one run lasts")
	fs.DurationVar(&f.down, "down", 8*time.Second, "how `long` a killed node stays down")
	fs.IntVar(&f.kills, "kills", 1, "how `often` a node of each cluster is killed")
	fs.IntVar(&f.relayKills, "relay-kills", 20, "how `often` the relay that delivers exactly once is killed")
	fs.IntVar(&f.takeovers, "takeovers", 6, "how `often` one of two relays that deliver exactly once is killed or frozen until the other has taken over")
	fs.IntVar(&f.brokers, "brokers", 3, "how `many` Kafka brokers there are")
	fs.DurationVar(&f.patience, "patience", 2*time.Minute, "how `long` a destination may bring nothing new after the last push")
	fs.DurationVar(&f.build, "build", 8*time.Minute, "how `long` fetching and building a server may take")
	fs.StringVar(&f.cache, "cache", defaultCache(), "`folder` for servers that are fetched or built")
	fs.BoolVar(&f.keep, "keep", false, "keep the folder with all logs")
	cmd.AddCommand(newNATSCommand())
	return cmd
}

// newNATSCommand is how this program starts itself as a node of NATS.
func newNATSCommand() *cobra.Command {
	return &cobra.Command{
		Use: natsCommand + " FILE", Hidden: true, Args: cobra.ExactArgs(1),
		Short: "Run one nats-server by a configuration file",
		RunE:  func(_ *cobra.Command, args []string) error { return natstest.RunNode(args[0]) },
	}
}

// natsCommand is the name of the hidden command.
const natsCommand = "nats-server"

func defaultCache() string {
	dir, err := os.UserCacheDir() // XDG_CACHE_HOME, or ~/.cache
	if err != nil {
		dir = os.TempDir()
	}
	return filepath.Join(dir, "auditrelay", "integration")
}

// errFound means that something was lost, or did not behave.
var errFound = errors.New("something was lost or did not behave, see the table")

func run(ctx context.Context, f flags, out io.Writer) error {
	chosen, err := choose(f.only)
	if err != nil {
		return err
	}
	if err := f.check(); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "auditrelay-integration-")
	if err != nil {
		return err
	}
	if f.keep {
		fmt.Fprintln(out, "All logs are in", dir)
	} else {
		defer func() { _ = os.RemoveAll(dir) }()
	}
	s := &session{flags: f, dir: dir, out: out}
	defer s.close()
	s.playAll(ctx, chosen)
	fmt.Fprint(out, table(s.rows))
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("cut off: %w", err)
	}
	if found(s.rows) {
		return errFound
	}
	return nil
}

// check makes the paths absolute, and refuses useless flags.
func (f *flags) check() (err error) {
	switch {
	case f.rate <= 0:
		return fmt.Errorf("--rate: %v is not above 0", f.rate)
	case f.load < time.Second:
		return fmt.Errorf("--load: %s is less than a second", f.load)
	case f.kills < 0 || f.relayKills < 0 || f.takeovers < 0 || f.brokers < 1:
		return errors.New("--kills, --relay-kills, --takeovers, --brokers: a number is too small")
	case f.down < 0 || f.patience <= 0 || f.build <= 0:
		return errors.New("--down, --patience, --build: a time is not positive")
	}
	if f.cache, err = filepath.Abs(f.cache); err != nil {
		return err
	}
	if f.binary, err = filepath.Abs(f.binary); err != nil {
		return err
	}
	if _, err := os.Stat(f.binary); err != nil {
		return fmt.Errorf("find the relay: %w; build it with 'make build', or name it with --binary", err)
	}
	return nil
}
