package cli

import (
	"errors"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/auditrelay/auditrelay/internal/datadir"
	"github.com/auditrelay/auditrelay/internal/streamserver"
)

func (p Program) newJournalInspect() *cobra.Command {
	flags := journalFlags{kinds: p.Kinds.Config()}
	cmd := &cobra.Command{
		Use:   "inspect",
		Short: "Show the streams of a stopped relay, and its sinks' positions",
		Long: `Shows the streams of a data directory with their records, events, size and time span, the
position and lag of each sink, and the quarantine. It changes nothing. Stop the relay
first.

Exit codes: 0 shown, 1 could not be read, 64 wrong usage.`,
		Example: `  auditrelay journal inspect --data-dir /var/lib/auditrelay
  auditrelay journal inspect --config relay.yaml --json`,
		Args: noArgs,
		RunE: runs(func(cmd *cobra.Command, _ []string) (err error) {
			dir, cfg, err := flags.load()
			if err != nil {
				return err
			}
			o, err := streamserver.OpenOffline(dir, cfg.StreamPrefix)
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, o.Close()) }()
			in, err := o.Inspect(cmd.Context(), progressTo(cmd.ErrOrStderr()))
			if err != nil {
				return err
			}
			return flags.print(cmd.OutOrStdout(), in, func() string { return inspectionText(in) })
		}),
	}
	flags.add(cmd)
	return cmd
}

func inspectionText(in *datadir.Inspection) string {
	var b strings.Builder
	table := tabwriter.NewWriter(&b, 0, 8, 2, ' ', 0)
	row := func(format string, cells ...any) { _, _ = fmt.Fprintf(table, format+"\n", cells...) } // into memory
	row("STREAM\tHOLDS\tRECORDS\tEVENTS\tBYTES\tPOSITIONS\tOLDEST\tNEWEST")
	for _, s := range in.Streams {
		row("%s\t%s\t%d\t%d\t%d\t%s\t%s\t%s", s.Name, s.Holds, s.Records, s.Events, s.Bytes, positions(s.First, s.Last), timeText(s.Oldest), timeText(s.Newest))
	}
	_ = table.Flush()
	row("\nSINK\tPOSITION\tLAG (RECORDS)\tLAG (EVENTS)")
	for _, p := range in.Sinks {
		row("%s\t%d\t%d\t%d", p.Sink, p.Position, p.LagRecords, p.LagEvents)
	}
	_ = table.Flush()
	if len(in.Quarantine) > 0 {
		row("\nQUARANTINED\tPOSITIONS\tFOUND\tREASON\tKEPT")
	}
	for _, q := range in.Quarantine {
		row("%s\t%s\t%s\t%s\t%s", q.Stream, positions(q.From, q.To), timeText(q.Time), q.Reason, q.Kept)
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
