// Command story plays a workspace, a relay and its command line, and compares the audit trail
// with the truth: changes of every kind, reorderings, guarded actions, a second try that is
// refused, an outage, a revoked key, a removed environment. It prints both, and fails on any
// difference.
//
// The relay is the real binary. The workspace is the simulator, reached through a [wire] that
// holds the settings and causes the faults.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"time"

	"github.com/auditrelay/auditrelay/internal/testbed/rig"
	"github.com/auditrelay/auditrelay/internal/testbed/workspacesim"
)

func main() {
	binary := flag.String("binary", "bin/auditrelay", "the relay to try, a `FILE`")
	verbose := flag.Bool("v", false, "print right rows, too")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := tell(ctx, *binary, *verbose); err != nil {
		fmt.Fprintln(os.Stderr, "story:", err)
		os.Exit(1)
	}
}

// tell plays all of it in a temporary folder.
func tell(ctx context.Context, binary string, verbose bool) (err error) {
	dir, err := os.MkdirTemp("", "auditrelay-story-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	s, err := newStage(ctx, binary, dir)
	if err != nil {
		return err
	}
	defer s.close()
	s.verbose = verbose
	start := time.Now()
	for _, act := range []func(context.Context) error{
		s.opening, s.changes, s.unreviewed, s.reorderings, s.actions, s.secondTry,
		s.outage, s.revokedKey, s.removedEnvironment, s.atTheSink,
	} {
		if err := act(ctx); err != nil {
			return err
		}
	}
	fmt.Printf("\n%d rows, %d differences, %.0f s\n", s.rows, s.wrong, time.Since(start).Seconds())
	if s.wrong > 0 {
		return fmt.Errorf("%d differences between what happened and what the trail says", s.wrong)
	}
	return nil
}

// lookEvery is the interval of the relay's looks.
const lookEvery = 200 * time.Millisecond

// stage is a relay whose requests go through the wire.
type stage struct {
	wire    *wire
	relay   *rig.Relay
	binary  string
	config  string
	file    string // of the file sink
	seen    int64  // entries already compared, or older than the story
	verbose bool

	rows, wrong int
	sentences   []string // the summaries due at the sink
}

func newStage(ctx context.Context, binary, dir string) (*stage, error) {
	w, err := newWire()
	if err != nil {
		return nil, err
	}
	relay, err := rig.NewRelay(ctx, binary, dir)
	if err != nil {
		return nil, err
	}
	s := &stage{wire: w, relay: relay, binary: binary, file: filepath.Join(dir, "events.jsonl")}
	s.config = fmt.Sprintf(`data_dir: %q
workspace: {base_url: %q, key_id: %s, secret: "${SIM_SECRET}", requests_per_second: 1000}
ingest: {listen: "%s"}
admin: {listen: "%s"}
settings: {interval: %s}
streaming: {interval: %s}
sinks: [{name: file, file: {path: %q}}]
environments: [{project: %s, environment: %s}]
`, relay.DataDir(), w.url, workspacesim.DemoKeyID, relay.Ingest, relay.Admin, lookEvery, lookEvery,
		s.file, w.project, w.environment)
	return s, s.start(ctx)
}

func (s *stage) start(ctx context.Context) error {
	return s.relay.Start(ctx, s.config, patience, "SIM_SECRET="+workspacesim.DemoSecret)
}

func (s *stage) close() {
	s.relay.Close()
	s.wire.close()
}
