// Command bench measures the real relay binary over HTTP: accepted events, delivered
// events, and their cost. Everything shares one machine, so compare figures of one run
// only.
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
	peer   string
	dir    string
	only   string
	scale  float64
	short  bool

	against string
	count   int // pairs
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
and reads it back by event id. It prints a table, together with the rate of a
bare writer that fsyncs records as large as the relay's.

Most rows deliver to a Kafka broker inside this process, which takes a large part
of the CPU. The rows "to a file" deliver to a file that is not synced; the row
"batch records" gives the broker a record for many events (mode: batch).

With --against, each row runs --pairs times with both binaries, one right after
the other. The table, in Markdown, has the medians of OTHER and of this binary, and
the median, the smallest and the largest ratio of a pair.

With --peer, an OpenTelemetry Collector (with the lokireceiver, the
datadogreceiver, the kafkaexporter and file_storage) gets the same load over the
same broker after each row about throughput. Its queue is fsynced too.`,
		Example:      "  make bench\n  bin/bench --only 'json x100' --scale 2\n  bin/bench --against ./auditrelay-1.0 --pairs 10 --only x100\n  bin/bench --peer ./otelcol",
		Args:         cobra.NoArgs,
		SilenceUsage: true, SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error { return run(cmd.Context(), f) },
	}
	fs := cmd.Flags()
	fs.StringVar(&f.binary, "binary", "bin/auditrelay", "the relay `binary`")
	fs.StringVar(&f.peer, "peer", "", "the `binary` of a collector to compare with")
	fs.StringVar(&f.against, "against", "", "another relay `binary`, measured in turn with --binary")
	fs.IntVar(&f.count, "pairs", 5, "how often each row is measured with both binaries, with --against")
	fs.StringVar(&f.dir, "dir", os.TempDir(), "`directory` for data: on the disk that is to be measured")
	fs.StringVar(&f.only, "only", "", "only the rows with this `text` in their name; ^ and $ stand for its ends")
	fs.Float64Var(&f.scale, "scale", 1, "multiplies the number of events")
	fs.BoolVar(&f.short, "short", false, "a tenth of the events, to see that everything works")
	return cmd
}

// rows are in the order of the table.
func rows() []row {
	return []row{
		{name: "json x100", format: "json", batch: 100, conns: 8, events: 400_000, versus: true},
		{name: "proto x100", format: "proto", batch: 100, conns: 8, events: 400_000, versus: true},
		{name: "datadog x100", format: "datadog", batch: 100, conns: 8, events: 400_000, versus: true},
		{name: "json x100, to a file", format: "json", batch: 100, conns: 8, events: 400_000, file: true},
		{name: "proto x100, to a file", format: "proto", batch: 100, conns: 8, events: 400_000, file: true},
		{name: "datadog x100, to a file", format: "datadog", batch: 100, conns: 8, events: 400_000, file: true},
		{name: "json x1", format: "json", batch: 1, conns: 64, events: 100_000, versus: true},
		{name: "json x1000", format: "json", batch: 1000, conns: 8, events: 500_000, versus: true},
		{name: "json x1000, batch records", format: "json", batch: 1000, conns: 8, events: 500_000, mode: "batch"},
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
	if f.against != "" {
		return b.compare(ctx)
	}
	results, err := b.all(ctx)
	if err != nil {
		return err
	}
	if len(results) == 0 {
		return errNoRow
	}
	idle, err := b.idle(ctx, filepath.Join(dir, "idle"), 30*time.Second)
	if err != nil {
		return err
	}
	fmt.Println(table(results))
	fmt.Println(idle)
	for _, r := range results {
		lines, err := b.beside(ctx, r, results)
		if err != nil {
			return err
		}
		fmt.Print(lines)
	}
	return verdict(results)
}

// compare measures two binaries in turn and prints how they differ.
func (b *bench) compare(ctx context.Context) error {
	all, err := b.pairs(ctx)
	if err != nil {
		return err
	}
	if len(all) == 0 {
		return errNoRow
	}
	fmt.Printf("this:  %s\nother: %s\n%s", b.binary, b.against, pairsTable(all))
	return pairsVerdict(all)
}

var errNoRow = errors.New("no row has that name")

// sized is the row with as many events as --scale asks for.
func (b *bench) sized(r row) row {
	r.events = max(r.batch*r.conns, int(float64(r.events)*b.scale))
	return r
}

// all measures the chosen rows.
func (b *bench) all(ctx context.Context) ([]result, error) {
	var results []result
	for i, r := range chosen(rows(), b.only) {
		runs := []row{r}
		if r.versus && b.peer != "" {
			runs = append(runs, r.ofPeer())
		}
		for _, r := range runs {
			r = b.sized(r)
			r.rate = r.share * b.first.accepted
			fmt.Fprintf(os.Stderr, "%s …\n", r.name)
			res, err := b.measure(ctx, r, filepath.Join(b.dir, fmt.Sprint(i, r.peer)))
			if err != nil {
				return nil, fmt.Errorf("%s: %w", r.name, err)
			}
			if len(results) == 0 {
				b.first = res
			}
			results = append(results, res)
		}
	}
	return results, nil
}

// chosen returns the rows with text in their name. If one has a share of the first row's rate,
// the first row is included.
func chosen(all []row, text string) (some []row) {
	for _, r := range all {
		if !strings.Contains("^"+r.name+"$", text) {
			continue
		}
		if r.share > 0 && len(some) == 0 {
			some = append(some, all[0])
		}
		some = append(some, r)
	}
	return some
}

// ofPeer returns the row for a peer. It has fewer events, since a peer takes longer.
func (r row) ofPeer() row {
	const slower = 8
	r.peer, r.name, r.events = true, r.name+", collector", r.events/slower
	return r
}

// beside compares a row with a bare writer on the same disk, and with the peer.
func (b *bench) beside(ctx context.Context, r result, all []result) (string, error) {
	if r.peer || r.backlog {
		return "", nil
	}
	var lines strings.Builder
	if r.rate == 0 {
		ctx, stop := context.WithTimeout(ctx, time.Second)
		defer stop()
		alone, err := write(ctx, b.dir, r.recordBytes, 0)
		if err != nil {
			return "", err
		}
		wrote := r.accepted * r.diskPerEvent
		fmt.Fprintf(&lines, "%s: wrote %.1f MB/s, %.0f%% of a bare writer that fsyncs each record of %d bytes (%.1f MB/s, p99 %.2f ms)\n",
			r.name, wrote/1e6, wrote/alone.bytesPerSecond*100, alone.recordBytes, alone.bytesPerSecond/1e6, alone.p99)
	} else {
		fmt.Fprintf(&lines, "%s: ack p99 %.2f ms, %.1f x that of a bare write and fsync of %d bytes under the same load (%.2f ms)\n",
			r.name, r.p99, r.p99/r.beside.p99, r.beside.recordBytes, r.beside.p99)
	}
	for _, p := range all {
		if p.peer && p.name == r.ofPeer().name {
			fmt.Fprintf(&lines, "%s: %.1f x the collector's events/s end to end, 1/%.1f of its CPU-s/M\n",
				r.name, r.delivered/p.delivered, p.cpuPerMillion/r.cpuPerMillion)
		}
	}
	return lines.String(), nil
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
