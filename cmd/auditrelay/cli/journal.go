package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/app"
	"github.com/auditrelay/auditrelay/internal/control/console"
	"github.com/auditrelay/auditrelay/internal/journal"
	"github.com/auditrelay/auditrelay/internal/store"
)

// filesFlags name the files of a relay, which may be stopped.
type filesFlags struct {
	relayFlags
	kinds config.Kinds
}

func (p Program) files() *filesFlags {
	of := relayFlags{aboutConfig: "the relay's configuration `FILE`", aboutDir: "the relay's data `DIR`, instead of --config"}
	return &filesFlags{relayFlags: of, kinds: p.Kinds.Config()}
}

func (f *filesFlags) about() string { return "" }

func (f *filesFlags) open(*cobra.Command) (*config.Config, error) { return f.load() }

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
		return nil, errors.New("journal.url is set, so that an external cluster keeps the events: the relays read them back once an hour; see 'auditrelay sinks list', 'auditrelay cluster status', " +
			"and for what was lost 'auditrelay trail list --type journal.quarantined'; 'nats stream report' shows the streams")
	}
	return cfg, nil
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

func (p Program) newJournalInspect() *cobra.Command {
	return question("journal inspect", p.files(), orJSON("print JSON"), func(cmd *cobra.Command, cfg *config.Config, _ []string) (*inspection, error) {
		return inspectJournal(cmd.Context(), cfg)
	}, func(p *page, in *inspection) { in.print(p) })
}

// inspection is what stands in a data directory.
type inspection struct {
	Logs       []logSummary           `json:"logs"`
	Sinks      []journal.SinkPosition `json:"sinks"`
	Quarantine []journal.Loss         `json:"quarantine"`
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
	in := &inspection{Logs: []logSummary{}, Quarantine: append([]journal.Loss{}, files.lost...)}
	for i := range files.logs {
		l := &files.logs[i]
		s := logSummary{Name: l.name, ID: l.state.ID.String(), First: l.state.First, Last: l.state.End, Bytes: l.state.Bytes}
		if s.Oldest, err = l.timeOf(ctx, s.First); err == nil {
			s.Newest, err = l.timeOf(ctx, s.Last)
		}
		if err != nil {
			return nil, err
		}
		in.Logs = append(in.Logs, s)
	}
	in.Sinks, err = journal.PositionsIn(ctx, files.store)
	return in, err
}

func (in *inspection) print(p *page) {
	p.row("LOG", "RECORDS", "BYTES", "POSITIONS", "OLDEST", "NEWEST")
	for _, l := range in.Logs {
		p.row(l.Name, l.Last+1-l.First, l.Bytes, positions(uint64(l.First), uint64(l.Last)), moment(l.Oldest), moment(l.Newest))
	}
	p.line("")
	p.row("SINK", "POSITION", "LAG (RECORDS)", "OLDEST")
	for _, s := range in.Sinks {
		p.row(s.Sink, s.Acknowledged, s.Pending, moment(s.Oldest), s.Unknown)
	}
	if len(in.Quarantine) > 0 {
		p.line("")
		p.row("QUARANTINED", "POSITIONS", "FOUND", "REASON", "KEPT")
	}
	for _, q := range in.Quarantine {
		p.row(q.Log, positions(uint64(q.From), uint64(q.To)), moment(q.Time), q.Reason, q.Kept)
	}
}

func newJournalAccept() *cobra.Command {
	var yes bool
	return command("journal accept-damage", &relayFlags{}, func(cmd *cobra.Command, _ []string, client *console.Client) error {
		d, err := client.Damage(cmd.Context())
		if err != nil {
			return err
		}
		if d.Records == 0 {
			return journal.ErrNoDamage
		}
		question := fmt.Sprintf("%d records are damaged or lost, from position %d on; %d can be read. Let the sinks go on without them?", d.Records, d.First, d.Readable)
		if err := confirm(cmd, yes, question); err != nil {
			return err
		}
		was, err := client.AcceptDamage(cmd.Context())
		if err != nil {
			return err
		}
		return say(cmd.OutOrStdout(), "accepted: the sinks pass over %d damaged records; the quarantine names each", was.Records)
	}, yesFlag(&yes))
}

func (p Program) newJournalLetGo() *cobra.Command {
	which := p.configured()
	which.usage = "the relay's configuration `FILE`, with the new settings"
	var home app.Home
	var yes bool
	cmd := command("journal let-go", which, func(cmd *cobra.Command, _ []string, cfg *config.Config) error {
		log := newLogger(cmd.ErrOrStderr(), config.Log{Level: "warn", Format: "text"})
		return app.LetJournalGo(cmd.Context(), cfg, home, thisProcess(), log, func(left app.Left) error {
			if err := confirm(cmd, yes, fmt.Sprintf("Give up %v in %s?", left, home)); err != nil {
				return err
			}
			return say(cmd.OutOrStdout(), "given up: %v; the journal's files or streams stay", left)
		})
	}, text(&home.Prefix, "stream-prefix", "the old journal's stream_prefix, with --url"),
		text(&home.URL, "url", "the old journal's url, as the refusal names it; leave out for the data directory"), yesFlag(&yes))
	cmd.MarkFlagsRequiredTogether("stream-prefix", "url")
	return cmd
}
