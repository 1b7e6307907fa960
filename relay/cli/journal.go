package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/auditrelay/auditrelay/config"
)

func (p Program) newJournal() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "journal",
		Short: "Inspect, verify or repair the relay's data on disk",
		Long: `inspect and verify read the logs of a data directory, and change nothing: events, dead
letters, quarantine, audit trail and checkpoints. The relay may run meanwhile; it reports
the same at /status and /metrics, and repairs at its start. repair does that for a stopped
relay.

accept-damage lets a running relay go on after much damage. let-go gives up a journal
no longer named in the configuration.`,
		Example: `  auditrelay journal inspect --data-dir /var/lib/auditrelay
  auditrelay journal verify --config /etc/auditrelay/relay.yaml
  auditrelay journal repair --config /etc/auditrelay/relay.yaml --dry-run`,
		Args: subcommands,
		RunE: showHelp,
	}
	cmd.AddCommand(p.newJournalInspect(), p.newJournalVerify(), p.newJournalRepair(), newJournalAccept(), p.newJournalLetGo())
	return cmd
}

// journalFlags name a journal.
type journalFlags struct {
	kinds         config.Kinds
	file, dataDir string
	asJSON        bool
}

func (f *journalFlags) add(cmd *cobra.Command) {
	addConfigFlag(cmd, &f.file, "the relay's configuration `FILE`")
	addDirFlag(cmd, &f.dataDir, &f.file, "the relay's data `DIR`, instead of --config")
	cmd.Flags().BoolVar(&f.asJSON, "json", false, "print JSON")
}

// config returns the configuration, or the defaults on the directory of --data-dir.
func (f *journalFlags) config() (*config.Config, error) {
	if f.dataDir != "" {
		cfg := &config.Config{DataDir: f.dataDir}
		cfg.SetDefaults()
		return cfg, nil
	}
	cfg, _, err := f.kinds.Load(f.file)
	if err != nil {
		return nil, err
	}
	if cfg.Journal.URL != "" {
		return nil, errors.New("journal.url is set: an external cluster keeps the events, so look after them there ('nats stream info', 'nats stream report')")
	}
	return cfg, nil
}

// print writes v as JSON, or as text.
func (f *journalFlags) print(w io.Writer, v any, text func() string) error {
	out := ""
	if f.asJSON {
		data, err := json.MarshalIndent(v, "", "  ")
		if err != nil {
			return fmt.Errorf("encode result: %w", err)
		}
		out = string(data) + "\n"
	} else {
		out = text()
	}
	if _, err := io.WriteString(w, out); err != nil {
		return fmt.Errorf("print result: %w", err)
	}
	return nil
}

// progressTo shows the progress of a reading, on a terminal only.
func progressTo(w io.Writer) func(done, total int64) {
	f, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return nil
	}
	var shown time.Time
	return func(done, total int64) {
		if now := time.Now(); done >= total || now.Sub(shown) > 200*time.Millisecond {
			shown = now
			_, _ = fmt.Fprintf(f, "\rread %d of %d MB\033[K", done>>20, total>>20)
		}
		if done >= total {
			_, _ = fmt.Fprint(f, "\r\033[K")
		}
	}
}

// positions writes a run of positions.
func positions(from, to uint64) string {
	switch {
	case from == 0 || to < from:
		return "-"
	case from == to:
		return fmt.Sprint(from)
	default:
		return fmt.Sprintf("%d-%d", from, to)
	}
}
