package cli

import (
	"context"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/journal"
	"github.com/auditrelay/auditrelay/internal/journal/quarantine"
	"github.com/auditrelay/auditrelay/internal/store"
)

func (p Program) newJournalInspect() *cobra.Command {
	return question(&cobra.Command{
		Use:   "inspect",
		Short: "Show the logs in a data directory, and the sinks' positions",
		Long: `Shows each log of a data directory with its records, size and time span, the position and
lag of each sink, and the quarantine. It reads the files themselves and changes nothing,
and the relay may run meanwhile.

Exit codes: 0 shown, 1 could not be read, 64 wrong usage.`,
		Example: `  auditrelay journal inspect --data-dir /var/lib/auditrelay
  auditrelay journal inspect --config relay.yaml --json`,
	}, p.files(), orJSON("print JSON"), func(cmd *cobra.Command, cfg *config.Config, _ []string) (*inspection, error) {
		return inspectJournal(cmd.Context(), cfg)
	}, func(w io.Writer, in *inspection) error { return writeText(w, in.text()) })
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
	out := newTable(&b, "LOG", "RECORDS", "BYTES", "POSITIONS", "OLDEST", "NEWEST")
	for _, l := range in.Logs {
		out.row(l.Name, l.Last+1-l.First, l.Bytes, positions(uint64(l.First), uint64(l.Last)), moment(l.Oldest), moment(l.Newest))
	}
	_ = out.Flush() // into memory
	out.row("\nSINK", "POSITION", "LAG (RECORDS)", "OLDEST")
	for _, p := range in.Sinks {
		out.row(p.Sink, p.Acknowledged, p.Pending, moment(p.Oldest), p.Unknown)
	}
	_ = out.Flush()
	if len(in.Quarantine) > 0 {
		out.row("\nQUARANTINED", "POSITIONS", "FOUND", "REASON", "KEPT")
	}
	for _, q := range in.Quarantine {
		out.row(q.Log, positions(uint64(q.From), uint64(q.To)), moment(q.Time), q.Reason, q.Kept)
	}
	_ = out.Flush()
	return b.String()
}
