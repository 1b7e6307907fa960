package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/auditrelay/auditrelay/internal/trail/timeline"
)

func (p Program) newTrailExport() *cobra.Command {
	which := p.trail()
	var chosen entryFlags
	var path, dir string
	var archives []string
	form := outputFlag{value: "jsonl", allowed: []string{"jsonl", "csv", "tlog"}}
	cmd := &cobra.Command{
		Use:   "export",
		Short: "Write the audit trail as JSON lines, CSV, or a log for public verifiers",
		Long: `--form jsonl, the default, writes whole entries, one JSON object a line, the oldest first:
with the states before and after, the details, and the hash of the entry's leaf (base64).
Unreadable entries are left out; 'auditrelay journal verify' names them. --form csv writes
the same entries with the columns of 'trail list --output csv'. Without --project and
--environment it is all of them.

--form tlog writes the whole trail into --dir, a folder for each generation, in the layout
of C2SP tlog-tiles: the signed checkpoint, tiles, entry bundles, records too long for a
bundle, and the history of checkpoints. Every entry is proven by the signed root, and all
files are read back. Given again, after Ctrl-C too, it goes on, and adds new entries to an
older export. It copies the files in DATA_DIR/tlog, whether the relay runs or not; entries
moved out by 'trail archive' come from --archive.
` + whichTrail + `

Exit codes: 0 written, 1 failed, 64 wrong usage.`,
		Example: `  auditrelay trail export --config relay.yaml > trail.jsonl
  auditrelay trail export --config relay.yaml --since 2026-03-01 --severity medium --file march.jsonl
  auditrelay trail export --config relay.yaml --form csv --unreviewed --file review.csv
  auditrelay trail export --config relay.yaml --form tlog --dir /mnt/evidence/trail`,
		Args: noArgs,
	}
	lines := which.asks(func(cmd *cobra.Command, _ []string, source trailSource) error {
		count := 0
		err := writeTo(path, cmd.OutOrStdout(), func(w io.Writer) (err error) {
			count, err = writeEntries(cmd.Context(), w, source, chosen.filter, form.value)
			return err
		})
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(cmd.ErrOrStderr(), "%d entries exported\n", count)
		return err
	})
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if form.value == "tlog" {
			return which.exportLog(cmd, dir, archives)
		}
		return lines(cmd, args)
	}
	before(cmd, func() error { return checkExport(cmd, form.value, dir) })
	which.addTo(cmd)
	chosen.addTo(cmd, 0)
	cmd.Flags().StringVar(&path, "file", "", "write to a new `FILE` instead of standard output")
	cmd.Flags().Var(&form, "form", "`FORM` of the export: jsonl, csv, tlog")
	cmd.Flags().StringArrayVar(&archives, "archive", nil, "with --form tlog: a `DIR` that 'trail archive' moved old entries to; again for more")
	cmd.Flags().StringVar(&dir, "dir", "", "with --form tlog: the `DIR` to write to")
	return cmd
}

// writeEntries writes the readable entries that a filter chooses, as JSON lines or as CSV,
// and counts them.
func writeEntries(ctx context.Context, w io.Writer, source trailSource, filter timeline.Filter, form string) (count int, err error) {
	write := func(e timeline.Entry) error { return json.NewEncoder(w).Encode(e) }
	if form == "csv" {
		write = csvEntries(w)
	}
	err = source.Entries(ctx, filter, func(e timeline.Entry) error {
		if e.Missing {
			return nil
		}
		count++
		return write(e)
	})
	return count, err
}
