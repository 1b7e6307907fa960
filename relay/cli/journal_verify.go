package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/app"
	"github.com/auditrelay/auditrelay/internal/audit"
	"github.com/auditrelay/auditrelay/internal/datadir"
	"github.com/auditrelay/auditrelay/internal/streamserver"
)

func (p Program) newJournalVerify() *cobra.Command {
	flags := journalFlags{kinds: p.Kinds.Config()}
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "Read every record of a stopped relay, and name the damaged and lost ones",
		Long: `Reads every record of every stream in the data directory: events, dead letters,
quarantine, audit trail, checkpoints and credentials. It checks all checksums, decodes
events and dead letters, checks the trail's signatures, and looks for positions without
a record and for impossible positions of sinks. It names each problem with its position
and the remedy. It reads the files themselves and changes nothing. Stop the relay first.

Problems already named in the quarantine are shown as settled, and are no failure.

Exit codes: 0 no open problem, 1 problems, 64 wrong usage.`,
		Example: `  auditrelay journal verify --data-dir /var/lib/auditrelay
  auditrelay journal verify --config relay.yaml --json`,
		Args: noArgs,
		RunE: runs(func(cmd *cobra.Command, _ []string) error {
			cfg, err := flags.config()
			if err != nil {
				return err
			}
			v, err := verifyJournal(cmd, cfg)
			if err != nil {
				return err
			}
			if err := flags.print(cmd.OutOrStdout(), v, func() string { return verificationText(v) }); err != nil {
				return err
			}
			if v.Open() > 0 {
				return errReported
			}
			return nil
		}),
	}
	flags.add(cmd)
	return cmd
}

func verifyJournal(cmd *cobra.Command, cfg *config.Config) (_ *datadir.Verification, err error) {
	o, err := streamserver.OpenOffline(cfg.DataDir, cfg.Journal.StreamPrefix)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, o.Close()) }()
	progress := progressTo(cmd.ErrOrStderr())
	v, err := o.Verify(cmd.Context(), progress)
	if err != nil {
		return nil, err
	}
	return v, verifyTrail(cmd.Context(), o, cfg, v, progress)
}

// readerOf reads the trail's streams in a data directory. progress may be nil.
func readerOf(o *datadir.Offline, progress func(done, total int64)) audit.Reader {
	return func(ctx context.Context, stream string, fn func(audit.Message) error) (uint64, error) {
		return o.Read(ctx, stream, progress, func(seq uint64, subject string, header nats.Header, data []byte) error {
			return fn(audit.Message{Seq: seq, Subject: subject, Header: header, Data: data})
		})
	}
}

// entriesOf reads single entries of the trail in a data directory.
func entriesOf(o *datadir.Offline, prefix string) audit.Getter {
	var opened *datadir.Messages
	var mu sync.Mutex // of opened
	return func(ctx context.Context, seq uint64) (audit.Message, bool, error) {
		mu.Lock()
		defer mu.Unlock()
		if opened == nil {
			messages, err := o.Messages(ctx, audit.EntriesStream(prefix))
			if err != nil {
				return audit.Message{}, false, err
			}
			opened = messages
		}
		subject, header, data, found, err := opened.Get(seq)
		return audit.Message{Seq: seq, Subject: subject, Header: header, Data: data}, found, err
	}
}

// verifyTrail adds the findings of the audit trail's signatures and key.
func verifyTrail(ctx context.Context, o *datadir.Offline, cfg *config.Config, v *datadir.Verification, progress func(done, total int64)) error {
	options := app.TrailOptions(cfg)
	options.ForwardedFile, options.End = datadir.ReadWatermarks(cfg.DataDir).ForwardedFile(), o.End
	report, unnamed, err := audit.VerifyOffline(ctx, options, readerOf(o, progress))
	if err != nil {
		return err
	}
	for _, p := range report.Problems {
		found := datadir.Problem{
			Stream: cfg.Journal.StreamPrefix + "_AUDIT", What: "audit trail: " + p.String(), Settled: !slices.Contains(unnamed, p),
			Advice: "put a copy back, or start the relay: it names this in the trail, and goes on behind it",
		}
		if found.Settled {
			found.Advice = "nothing is left to do: the trail names it"
		}
		v.Problems = append(v.Problems, found)
	}
	for _, p := range report.Restored {
		v.Problems = append(v.Problems, datadir.Problem{
			Stream: cfg.Journal.StreamPrefix + "_AUDIT", What: "audit trail: " + p.String(), Settled: true,
			Advice: "nothing is left to do: the trail reads them from its files",
		})
	}
	return nil
}

func verificationText(v *datadir.Verification) string {
	var b strings.Builder
	for _, p := range v.Problems {
		state := "PROBLEM"
		if p.Settled {
			state = "settled"
		}
		fmt.Fprintf(&b, "%s  %s, position %s: %s\n", state, p.Stream, positions(p.From, p.To), p.What)
		if p.File != "" {
			fmt.Fprintf(&b, "         in %s", p.File)
			if p.Bytes > 0 {
				fmt.Fprintf(&b, ", %d bytes at offset %d", p.Bytes, p.Offset)
			}
			b.WriteString("\n")
		}
		fmt.Fprintf(&b, "         %s\n", p.Advice)
	}
	fmt.Fprintf(&b, "%d records with %d events (%d bytes) were read; problems: %d open, %d settled\n",
		v.Records, v.Events, v.Bytes, v.Open(), len(v.Problems)-v.Open())
	return b.String()
}
