package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/auditrelay/auditrelay/internal/journal"
)

func newJournalVerify() *cobra.Command {
	var flags journalFlags
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "Read every record that a stopped relay keeps and name what is damaged or lost",
		Long: `Reads every record of every stream in the data directory: events, dead letters,
quarantine, audit trail, checkpoints and credentials. It checks all checksums, decodes
events and dead letters, and looks for positions without a record and for positions
of sinks that cannot be right. Each problem is named with its position and what to do.
It reads the files themselves and changes nothing. The relay must be stopped.

What the quarantine names already is shown as settled, and is no failure.

Exit codes: 0 no problem that is open, 1 problems, 2 wrong usage.`,
		Example: `  auditrelay journal verify --data-dir /var/lib/auditrelay
  auditrelay journal verify --config relay.yaml --json`,
		Args: cobra.NoArgs,
		RunE: runs(func(cmd *cobra.Command, _ []string) error {
			dir, cfg, err := flags.load()
			if err != nil {
				return err
			}
			v, err := verifyJournal(cmd, dir, cfg.StreamPrefix)
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

func verifyJournal(cmd *cobra.Command, dir, prefix string) (_ *journal.Verification, err error) {
	o, err := journal.OpenOffline(dir, prefix)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, o.Close()) }()
	return o.Verify(cmd.Context(), progressTo(cmd.ErrOrStderr()))
}

func verificationText(v *journal.Verification) string {
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
