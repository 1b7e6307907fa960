// Command chaoshealth plays incidents on a simulated workspace, one relay each, and
// compares the reported health with the truth: the state, the time to
// notice, the events lost, and the alert.
//
// The relay is the real binary. With promtool, the alert rules are evaluated over the
// relay's metrics in each incident.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"sync"
)

func main() {
	o := options{}
	flag.StringVar(&o.binary, "binary", "bin/auditrelay", "the relay to try, a `FILE`")
	flag.StringVar(&o.promtool, "promtool", os.Getenv("PROMTOOL"), "promtool, a `FILE`, to evaluate the alert rules; by default the one in PATH")
	flag.StringVar(&o.rules, "rules", "deploy/prometheus/rules.yaml", "the alert rules, a `FILE`")
	flag.StringVar(&o.only, "only", "", "play only the incidents with this `TEXT` in their names")
	flag.IntVar(&o.parallel, "parallel", 6, "incidents at a time")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "chaoshealth:", err)
		os.Exit(1)
	}
}

type options struct {
	binary, promtool, rules, only string
	parallel                      int
}

// run plays all incidents in a temporary folder, and prints a row each.
func run(ctx context.Context, o options) (err error) {
	dir, err := os.MkdirTemp("", "auditrelay-chaos-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	outcomes := play(ctx, o, dir)
	printTable(outcomes)
	silent, err := checkAlerts(ctx, o, dir, outcomes)
	if err != nil {
		return err
	}
	return errors.Join(wrong(outcomes, silent), ctx.Err())
}

// play plays the incidents at the same time, since most of them wait most of the time. One with
// a wrong report is played once more, since a busy machine delays the simulator too.
func play(ctx context.Context, o options, dir string) []*outcome {
	var all []*outcome
	var wg sync.WaitGroup
	slots := make(chan struct{}, max(1, o.parallel))
	for i, in := range incidents() {
		if !strings.Contains(in.name, o.only) {
			continue
		}
		out := &outcome{incident: in}
		all = append(all, out)
		wg.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			out.play(ctx, o.binary, fmt.Sprintf("%s/%02d", dir, i))
			if first := *out; !first.right() && ctx.Err() == nil {
				fmt.Fprintf(os.Stderr, "once more: %s\n", first.explain())
				*out = outcome{incident: incidents()[i], first: &first} // its receivers have not been closed
				out.play(ctx, o.binary, fmt.Sprintf("%s/%02d-again", dir, i))
			}
			fmt.Fprintf(os.Stderr, "played: %s\n", in.name)
		})
	}
	wg.Wait()
	return all
}

// findPromtool returns the path of promtool, empty if there is none.
func findPromtool(path string) string {
	if path != "" {
		return path
	}
	found, err := exec.LookPath("promtool")
	if err != nil {
		return ""
	}
	return found
}
