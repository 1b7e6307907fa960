package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/trail/audit"
)

func (p Program) newJournal() *cobra.Command {
	return under(&cobra.Command{
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
	}, p.newJournalInspect(), p.newJournalVerify(), p.newJournalRepair(), newJournalAccept(), p.newJournalLetGo())
}

// filesFlags name the files of a relay, which may be stopped.
type filesFlags struct {
	relayFlags
	kinds config.Kinds
}

func (p Program) files() *filesFlags { return &filesFlags{kinds: p.Kinds.Config()} }

func (f *filesFlags) about() string { return "" }

func (f *filesFlags) addTo(cmd *cobra.Command) {
	addConfigFlag(cmd, &f.config, "the relay's configuration `FILE`")
	addDirFlag(cmd, &f.dataDir, &f.config, "the relay's data `DIR`, instead of --config")
}

// asks implements source.
func (f *filesFlags) asks(run func(cmd *cobra.Command, args []string, cfg *config.Config) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		cfg, err := f.load()
		if err != nil {
			return err
		}
		return run(cmd, args, cfg)
	}
}

// load returns the configuration, or the defaults on the directory of --data-dir.
func (f *filesFlags) load() (*config.Config, error) {
	if f.dataDir != "" {
		cfg := &config.Config{DataDir: f.dataDir}
		cfg.SetDefaults()
		return cfg, nil
	}
	cfg, _, err := f.kinds.Load(f.config)
	if err != nil {
		return nil, err
	}
	if cfg.Journal.URL != "" {
		return nil, errors.New("journal.url is set: an external cluster keeps the events, so look after them there ('nats stream info', 'nats stream report')")
	}
	return cfg, nil
}

// openTrail opens the trail in the data directory for reading only.
func (f *filesFlags) openTrail(ctx context.Context) (*config.Config, *audit.Reader, error) {
	cfg, err := f.load()
	if err != nil {
		return nil, nil, err
	}
	trail, err := readTrail(ctx, cfg)
	return cfg, trail, err
}

// writeText prints a text for people.
func writeText(w io.Writer, text string) error {
	_, err := io.WriteString(w, text)
	return err
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
