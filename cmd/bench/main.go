// Command bench measures the real relay binary over HTTP: what it accepts, what
// arrives at Kafka, and what that costs. Everything shares one machine, so
// figures of one run compare with each other, and with little else.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
)

type flags struct {
	binary string
	dir    string
	only   string
	scale  float64
	short  bool
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	if err := newCommand().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func newCommand() *cobra.Command {
	var f flags
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure the relay: throughput, latency and cost",
		Long: `Starts the relay binary with an empty data directory for each row, loads it over
HTTP with bodies made beforehand, waits until the destination has everything,
reads that back by event id, and prints a table. The last row is the limit: a
bare writer that fsyncs records of the size that the relay wrote.`,
		Example:      "  make bench\n  bin/bench --only 'json x100' --scale 2",
		Args:         cobra.NoArgs,
		SilenceUsage: true, SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error { return run(cmd.Context(), f) },
	}
	fs := cmd.Flags()
	fs.StringVar(&f.binary, "binary", "bin/auditrelay", "the relay `binary`")
	fs.StringVar(&f.dir, "dir", os.TempDir(), "`directory` for data: on the disk that is to be measured")
	fs.StringVar(&f.only, "only", "", "only the rows whose name holds this `text`")
	fs.Float64Var(&f.scale, "scale", 1, "multiplies the number of events")
	fs.BoolVar(&f.short, "short", false, "a tenth of the events, to see that everything works")
	return cmd
}

// rows are what is measured, in the order of the table.
func rows() []row {
	return []row{
		{name: "json x100", format: "json", batch: 100, conns: 8, events: 400_000},
		{name: "proto x100", format: "proto", batch: 100, conns: 8, events: 400_000},
		{name: "datadog x100", format: "datadog", batch: 100, conns: 8, events: 400_000},
		{name: "json x1", format: "json", batch: 1, conns: 64, events: 100_000},
		{name: "json x1000", format: "json", batch: 1000, conns: 8, events: 500_000},
		{name: "json x100, half load", format: "json", batch: 100, conns: 8, events: 300_000, share: 0.5},
		{name: "json x100, four sinks", format: "json", batch: 100, conns: 8, events: 300_000, sinks: 4},
		{name: "json x100, backlog", format: "json", batch: 100, conns: 8, events: 1_500_000, backlog: true},
	}
}

func run(ctx context.Context, f flags) error {
	if f.short {
		f.scale *= 0.1
	}
	dir, err := os.MkdirTemp(f.dir, "auditrelay-bench-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	b := &bench{flags: f, dir: dir}
	var results []result
	for i, r := range rows() {
		if !strings.Contains(r.name, f.only) {
			continue
		}
		r.events = max(r.batch*r.conns, int(float64(r.events)*f.scale))
		r.rate = r.share * b.best
		fmt.Fprintf(os.Stderr, "%s …\n", r.name)
		res, err := b.measure(ctx, r, filepath.Join(dir, fmt.Sprint(i)))
		if err != nil {
			return fmt.Errorf("%s: %w", r.name, err)
		}
		if b.best == 0 {
			b.best = res.accepted
		}
		results = append(results, res)
	}
	idle, err := b.idle(ctx, filepath.Join(dir, "idle"), 10*time.Second)
	if err != nil {
		return err
	}
	fmt.Println(table(results))
	fmt.Println(idle)
	if len(results) == 0 {
		return errors.New("no row has that name")
	}
	limit, err := bareWriter(dir, results[0].recordBytes, 2*time.Second)
	if err != nil {
		return err
	}
	fmt.Println(limit.describe(results[0]))
	return verdict(results)
}

func table(results []result) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "work\taccepted/s\tend to end/s\tMB/s\tCPU-s/M\tp50 ms\tp99 ms\tRSS MB\tdisk B/event\tcommits/event\tlost\tduplicates\t")
	for _, r := range results {
		fmt.Fprintf(w, "%s\t%.0f\t%.0f\t%.0f\t%.1f\t%.2f\t%.2f\t%.0f\t%.0f\t%.4f\t%d\t%d\t\n", r.name, r.accepted, r.delivered,
			r.accepted*r.eventBytes/1e6, r.cpuPerMillion, r.p50, r.p99, r.rss, r.diskPerEvent, r.commitsPerEvent, r.lost, r.duplicates)
	}
	_ = w.Flush() // to a strings.Builder
	return b.String()
}

func verdict(results []result) error {
	for _, r := range results {
		if r.lost > 0 {
			return fmt.Errorf("%s: %d acknowledged events are missing at the destination", r.name, r.lost)
		}
	}
	return nil
}
