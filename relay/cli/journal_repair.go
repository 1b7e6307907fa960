package cli

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"

	"github.com/spf13/cobra"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/audit"
	"github.com/auditrelay/auditrelay/internal/journal"
	"github.com/auditrelay/auditrelay/internal/streamserver"
)

func (p Program) newJournalRepair() *cobra.Command {
	flags := journalFlags{kinds: p.Kinds.Config()}
	var yes, dryRun, unknownIsDamage bool
	cmd := &cobra.Command{
		Use:   "repair",
		Short: "Repair the streams of a stopped relay, with a copy of all removed bytes",
		Long: `Repairs the findings of 'auditrelay journal verify' in every stream: events, dead
letters, quarantine, audit trail, checkpoints and credentials. A start of the relay does
the same. It copies damaged bytes to the folder "salvage" in the data directory before it
takes them out, names lost and unreadable positions in the quarantine, and sets
impossible positions of sinks back. A signed entry names damage to the trail. You can end
it and begin again at any moment. Stop the relay first.

Take a copy of the data directory before.

Exit codes: 0 repaired, or nothing to do, 1 failed or declined, 64 wrong usage.`,
		Example: `  auditrelay journal repair --config relay.yaml --dry-run
  cp -a /var/lib/auditrelay /var/lib/auditrelay.copy
  auditrelay journal repair --config relay.yaml --yes`,
		Args: noArgs,
		RunE: runs(func(cmd *cobra.Command, _ []string) error {
			cfg, err := flags.config()
			if err != nil {
				return err
			}
			dir := cfg.DataDir
			v, err := verifyJournal(cmd, cfg)
			if err != nil {
				return err
			}
			if dryRun || v.Open() == 0 {
				return flags.print(cmd.OutOrStdout(), v, func() string { return verificationText(v) + "nothing was changed\n" })
			}
			if !yes {
				_, _ = io.WriteString(cmd.ErrOrStderr(), verificationText(v))
			}
			question := fmt.Sprintf("Take a copy of %s first, for instance: cp -a %s %s.copy\nRepair now?", dir, dir, dir)
			if err := confirm(cmd, yes, question); err != nil {
				return err
			}
			return repairJournal(cmd, cfg, &flags, unknownIsDamage)
		}),
	}
	flags.add(cmd)
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	cmd.Flags().BoolVar(&unknownIsDamage, "unknown-is-damage", false, "move blocks without a single good checksum to the salvage folder; they may be sound records of another version")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "only list the repairs")
	return cmd
}

// repairControl repairs the trail like a start.
func repairControl(cfg *config.Config, log *slog.Logger) func(context.Context, *streamserver.Conn) error {
	return func(ctx context.Context, conn *streamserver.Conn) error {
		return withTrail(ctx, cfg, conn, log, func(context.Context, *audit.Trail) error { return nil })
	}
}

func repairJournal(cmd *cobra.Command, cfg *config.Config, flags *journalFlags, unknownIsDamage bool) error {
	log := newLogger(cmd.ErrOrStderr(), config.Log{Level: "warn", Format: "text"})
	done, err := journal.Repair(cmd.Context(), cfg.DataDir, cfg.Journal, log, journal.RepairOptions{
		UnknownIsDamage: unknownIsDamage, Others: repairControl(cfg, log),
	})
	if err != nil {
		return err
	}
	return flags.print(cmd.OutOrStdout(), done, func() string {
		var b strings.Builder
		for _, m := range done.Mended {
			fmt.Fprintf(&b, "mended      %s, position %s: %s", m.File, positions(m.From, m.To), m.Problem)
			if m.Kept != "" {
				fmt.Fprintf(&b, "; the bytes are in %s", m.Kept)
			}
			b.WriteString("\n")
		}
		for _, q := range done.SetAside {
			fmt.Fprintf(&b, "set aside   %s, position %s: %s\n", q.Stream, positions(q.From, q.To), q.Reason)
		}
		fmt.Fprintf(&b, "repaired: %d pieces mended, %d runs of positions set aside, positions checked: %s\n",
			len(done.Mended), len(done.SetAside), strings.Join(done.Positions, ", "))
		return b.String()
	})
}
