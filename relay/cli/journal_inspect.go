package cli

import (
	"context"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/journal"
	"github.com/auditrelay/auditrelay/internal/quarantine"
	"github.com/auditrelay/auditrelay/internal/store"
)

func (p Program) newJournalInspect() *cobra.Command {
	flags := journalFlags{kinds: p.Kinds.Config()}
	cmd := &cobra.Command{
		Use:   "inspect",
		Short: "Show the logs in a data directory, and the sinks' positions",
		Long: `Shows each log of a data directory with its records, size and time span, the position and
lag of each sink, and the quarantine. It reads the files themselves and changes nothing,
and the relay may run meanwhile.

Exit codes: 0 shown, 1 could not be read, 64 wrong usage.`,
		Example: `  auditrelay journal inspect --data-dir /var/lib/auditrelay
  auditrelay journal inspect --config relay.yaml --json`,
		Args: noArgs,
		RunE: runs(func(cmd *cobra.Command, _ []string) error {
			cfg, err := flags.config()
			if err != nil {
				return err
			}
			in, err := inspectJournal(cmd.Context(), cfg)
			if err != nil {
				return err
			}
			return flags.print(cmd.OutOrStdout(), in, in.text)
		}),
	}
	flags.add(cmd)
	return cmd
}

// inspection is what stands in a data directory.
type inspection struct {
	Logs       []logSummary           `json:"logs"`
	Sinks      []journal.SinkPosition `json:"sinks"`
	Quarantine []quarantine.Loss      `json:"quarantine"`
}

type logSummary struct {
	Name   string    `json:"name"`
	ID     string    `json:"id"`
	First  store.Pos `json:"first"`
	Last   store.Pos `json:"last"`
	Bytes  int64     `json:"bytes"`
	Oldest time.Time `json:"oldest,omitzero"`
	Newest time.Time `json:"newest,omitzero"`
}

func inspectJournal(ctx context.Context, cfg *config.Config) (*inspection, error) {
	files, err := openLogs(ctx, cfg)
	if err != nil {
		return nil, err
	}
	in := &inspection{Logs: []logSummary{}, Quarantine: append([]quarantine.Loss{}, files.lost...)}
	err = files.visit(ctx, func(name string, l store.Log, state store.State) error {
		s := logSummary{Name: name, ID: state.ID.String(), First: state.First, Last: state.End, Bytes: state.Bytes}
		var err error
		if s.Oldest, err = timeOf(ctx, l, state.First); err == nil {
			s.Newest, err = timeOf(ctx, l, state.End)
		}
		in.Logs = append(in.Logs, s)
		return err
	})
	if err != nil {
		return nil, err
	}
	in.Sinks, err = journal.PositionsIn(ctx, files.store)
	return in, err
}

func (in *inspection) text() string {
	var b strings.Builder
	table := tabwriter.NewWriter(&b, 0, 8, 2, ' ', 0)
	row := func(format string, cells ...any) { _, _ = fmt.Fprintf(table, format+"\n", cells...) } // into memory
	row("LOG\tRECORDS\tBYTES\tPOSITIONS\tOLDEST\tNEWEST")
	for _, l := range in.Logs {
		row("%s\t%d\t%d\t%s\t%s\t%s", l.Name, l.Last+1-l.First, l.Bytes, positions(uint64(l.First), uint64(l.Last)), timeText(l.Oldest), timeText(l.Newest))
	}
	_ = table.Flush()
	row("\nSINK\tPOSITION\tLAG (RECORDS)\tOLDEST")
	for _, p := range in.Sinks {
		row("%s\t%d\t%d\t%s\t%s", p.Sink, p.Acknowledged, p.Pending, timeText(p.Oldest), p.Unknown)
	}
	_ = table.Flush()
	if len(in.Quarantine) > 0 {
		row("\nQUARANTINED\tPOSITIONS\tFOUND\tREASON\tKEPT")
	}
	for _, q := range in.Quarantine {
		row("%s\t%s\t%s\t%s\t%s", q.Log, positions(uint64(q.From), uint64(q.To)), timeText(q.Time), q.Reason, q.Kept)
	}
	_ = table.Flush()
	return b.String()
}

func timeText(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.UTC().Format(time.RFC3339)
}
