// Command cluster plays faults against several relays that share one journal: three NATS
// servers and three relays, each on a machine of its own as far as the network goes, take a
// steady load while relays and servers are killed, frozen, cut off, slowed down and
// upgraded. It compares, by event id, what was acknowledged with what arrived.
//
// The machines are network namespaces. Each has one interface, whose packets come to this
// process, which passes them on, delays them or loses them: neither nftables nor netem is
// needed, and nothing of it outlives the process. Where that is not permitted, everything
// runs on loopback with proxies in between, which cannot lose packets.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/auditrelay/auditrelay/internal/testbed/natstest"
)

// flags are the command's.
type flags struct {
	binary   string
	rounds   int
	rate     float64
	seed     uint64
	only     []string
	loopback bool
	keep     bool
	scale    time.Duration
	shards   int
	lasts    time.Duration // 0: no end
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	err := newCommand().ExecuteContext(ctx)
	var ended *exitError
	switch {
	case errors.As(err, &ended): // it has said why
		os.Exit(ended.code)
	case err != nil:
		fmt.Fprintln(os.Stderr, "cluster:", err)
		if errors.Is(err, errFound) {
			os.Exit(1)
		}
		os.Exit(2)
	}
}

func newCommand() *cobra.Command {
	f := flags{seed: uint64(time.Now().UnixNano())}
	cmd := &cobra.Command{
		Use:   "cluster",
		Short: "Kill, freeze, cut off and upgrade relays that share a journal, and count what is lost",
		Long: `Runs three NATS servers and three relays, pushes events to all relays, plays faults
against them in rounds, and checks after each round that everything acknowledged has arrived,
that each job has one relay, and that there is one audit trail, which verifies.

Plays: ` + playNames() + `.

Exit codes: 0 nothing lost and every process behaved, 1 otherwise, 2 wrong usage, or it could not run.`,
		Example: `  cluster
  cluster --rounds 200 --seed 42
  cluster --rounds 200 --for 1h
  cluster --only freeze,cut --rounds 10
  cluster --shards 3 --rounds 20
  cluster --scale 20s`,
		Args:         cobra.NoArgs,
		SilenceUsage: true, SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error { return outside(cmd.Context(), f) },
	}
	fs := cmd.Flags()
	fs.StringVar(&f.binary, "binary", "bin/auditrelay", "the relay's `file`")
	fs.IntVar(&f.rounds, "rounds", len(plays()), "how `many` rounds; each play comes once before any comes again")
	fs.DurationVar(&f.lasts, "for", 0, "begin no round after this `time` (default: play all)")
	fs.Float64Var(&f.rate, "rate", 5000, "`events` a second")
	fs.Uint64Var(&f.seed, "seed", f.seed, "what the plays follow from (default: the time)")
	fs.IntVar(&f.shards, "shards", 1, "over how `many` streams the environments are spread at first")
	fs.StringSliceVar(&f.only, "only", nil, "play only those with these `names`")
	fs.BoolVar(&f.loopback, "loopback", false, "proxies on loopback instead of network namespaces")
	fs.BoolVar(&f.keep, "keep", false, "keep the folder with the logs")
	fs.DurationVar(&f.scale, "scale", 0, "play nothing, but measure for this `time` each what some relays and shards take, and say what follows for more cores")
	cmd.AddCommand(newNATSCommand(), newEnterCommand())
	return cmd
}

// natsCommand is how this program starts itself as a server.
const natsCommand = "nats-server"

func newNATSCommand() *cobra.Command {
	return &cobra.Command{
		Use: natsCommand + " FILE", Hidden: true, Args: cobra.ExactArgs(1),
		Short: "Run one nats-server by a configuration file",
		RunE:  func(_ *cobra.Command, args []string) error { return natstest.RunNode(args[0]) },
	}
}

// errFound means that something was lost, or did not behave.
var errFound = errors.New("something was lost or did not behave, see the table")

// dirVariable names the folder to the process that plays: the one that made it removes it
// afterwards, however the play ends.
const dirVariable = "AUDITRELAY_CLUSTER_DIR"

// outside makes the folder, and runs this program again in a namespace of its own.
func outside(ctx context.Context, f flags) error {
	if err := f.check(); err != nil {
		return err
	}
	if dir := os.Getenv(dirVariable); dir != "" {
		return play(ctx, f, dir, os.Stdout)
	}
	dir, err := os.MkdirTemp("", "auditrelay-cluster-")
	if err != nil {
		return err
	}
	if f.keep {
		fmt.Println("The logs are in", dir)
	} else {
		defer func() { _ = os.RemoveAll(dir) }()
	}
	if f.scale > 0 {
		return scaleUp(ctx, f, dir, os.Stdout)
	}
	fmt.Printf("seed %d: 'cluster --seed %d' plays the same again\n", f.seed, f.seed)
	if !f.loopback {
		err = againInside(ctx, dir, f.seed)
		if !errors.Is(err, errNotPermitted) {
			return err
		}
		fmt.Println("proxies on loopback stand in for network namespaces:", err)
	}
	f.loopback = true
	return play(ctx, f, dir, os.Stdout)
}

func (f *flags) check() error {
	binary, err := filepath.Abs(f.binary)
	if err != nil {
		return err
	}
	if _, err := os.Stat(binary); err != nil {
		return fmt.Errorf("find the relay: %w; build it with 'make build', or name it with --binary", err)
	}
	f.binary = binary
	_, err = choose(f.only)
	return err
}
