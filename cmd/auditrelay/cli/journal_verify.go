package cli

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/app"
	"github.com/auditrelay/auditrelay/internal/trail/audit"
)

func (p Program) newJournalVerify() *cobra.Command {
	return question(&cobra.Command{
		Use:   "verify",
		Short: "Read every record in a data directory, and name the damaged and lost ones",
		Long: `Reads every record of every log in the data directory: events, dead letters, quarantine,
audit trail and checkpoints. It checks all checksums, decodes the events, checks the
trail's signatures, and names each position without a readable record, with the remedy.
It reads the files themselves and changes nothing, and the relay may run meanwhile.

Problems that the quarantine or the trail names already are shown as settled, and are no
failure.

Exit codes: 0 no open problem, 1 problems, 64 wrong usage.`,
		Example: `  auditrelay journal verify --data-dir /var/lib/auditrelay
  auditrelay journal verify --config relay.yaml --json`,
	}, p.files(), orJSON("print JSON"), verifyJournal, printVerification, func(v *verification) error {
		if v.open() > 0 {
			return errReported
		}
		return nil
	})
}

func verifyJournal(cmd *cobra.Command, cfg *config.Config, _ []string) (*verification, error) {
	files, err := openLogs(cmd.Context(), cfg)
	if err != nil {
		return nil, err
	}
	v, err := files.verify(cmd.Context(), progressTo(cmd.ErrOrStderr()))
	if err != nil {
		return nil, err
	}
	return v, verifyTrail(cmd.Context(), cfg, v)
}

// verifyTrail adds the findings of the audit trail's signatures and key.
func verifyTrail(ctx context.Context, cfg *config.Config, v *verification) error {
	trail, err := readTrail(ctx, cfg)
	if err != nil {
		return err
	}
	defer trail.Close()
	report, unnamed, err := audit.VerifyOffline(ctx, app.TrailOptions(cfg), trail)
	if err != nil {
		return err
	}
	for _, p := range slices.Concat(report.Problems, report.Restored) {
		found := problem{
			Log: audit.EntriesLog, What: "audit trail: " + p.String(), Settled: !slices.Contains(unnamed, p),
			Advice: "put a copy back, or start the relay: it names this in the trail, and goes on",
		}
		if found.Settled {
			found.Advice = "nothing is left to do: the trail names it"
		}
		v.Problems = append(v.Problems, found)
	}
	return nil
}

func verificationText(v *verification) string {
	var b strings.Builder
	for _, p := range v.Problems {
		state := "PROBLEM"
		if p.Settled {
			state = "settled"
		}
		fmt.Fprintf(&b, "%s  %s, position %s: %s\n", state, p.Log, positions(uint64(p.From), uint64(p.To)), p.What)
		if p.Kept != "" {
			fmt.Fprintf(&b, "         the bytes are in %s\n", p.Kept)
		}
		fmt.Fprintf(&b, "         %s\n", p.Advice)
	}
	fmt.Fprintf(&b, "%d records with %d events (%d bytes) were read; problems: %d open, %d settled\n",
		v.Records, v.Events, v.Bytes, v.open(), len(v.Problems)-v.open())
	return b.String()
}

func printVerification(w io.Writer, v *verification) error { return writeText(w, verificationText(v)) }
