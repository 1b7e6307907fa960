package cli

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/auditrelay/auditrelay/internal/control/console"
	"github.com/auditrelay/auditrelay/internal/trail/proof"
)

func newTrailArchive() *cobra.Command {
	var which relayFlags
	var beforeTime timeFlag
	var dir string
	var yes, dryRun bool
	cmd := &cobra.Command{
		Use:   "archive --before TIME --to DIR",
		Short: "Move old entry bundles of the audit trail out of the data directory",
		Long: `Moves the files with old entries, DATA_DIR/tlog/N/tile/entries and records, to a folder of
the relay's machine: those with no entry made at or after a time. The relay copies them,
reads the archive back against its signed root, says so in an entry of the trail, and
removes them only then. The archive is a whole log (C2SP tlog-tiles), with a signed
checkpoint: 'trail verify --dir DIR' and other tools verify it.

The hashes stay, so every entry can still be proven; see --archive of 'trail prove' and 'trail
verify'. Files with entries about the trail itself stay too. The trail's stream in the
journal keeps all entries for ever: the relay reads them from there, and this command frees
the space of the files only.

It asks first, except with --yes. You can end it and begin it again at any moment: it goes on.
To undo it, copy the files back.
` + whichRelay + `

Exit codes: 0 moved, or nothing to move; 1 failed or declined, 64 wrong usage.`,
		Example: `  auditrelay trail archive --config relay.yaml --before 2026-01-01 --to /mnt/archive --dry-run
  auditrelay trail archive --config relay.yaml --before 2026-01-01 --to /mnt/archive`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			to, err := filepath.Abs(dir)
			if err != nil {
				return err
			}
			return archiveTrail(cmd, &which, console.ArchiveTrail{Before: beforeTime.time, Dir: to}, yes, dryRun)
		},
	}
	which.addTo(cmd)
	flags := cmd.Flags()
	flags.Var(&beforeTime, "before", "move what was made before this time; "+timeFlagHelp)
	flags.StringVar(&dir, "to", "", "the archive's `DIR`: an empty folder, or an earlier archive of this trail")
	flags.BoolVar(&dryRun, "dry-run", false, "only say what would be moved")
	yesFlag(&yes).addTo(cmd)
	needFlags(cmd, "before", "to")
	return cmd
}

func archiveTrail(cmd *cobra.Command, which *relayFlags, request console.ArchiveTrail, yes, dryRun bool) error {
	client, err := which.client()
	if err != nil {
		return err
	}
	request.DryRun = true
	shown := newProgress(cmd.ErrOrStderr())
	if err := client.ArchiveTrail(cmd.Context(), request, shown.report); err != nil {
		return err
	}
	shown.end()
	if err := printArchived(cmd.OutOrStdout(), shown.last.Archived, "would be moved"); err != nil || dryRun {
		return err
	}
	// With nothing to move, a run removes the leftovers of an interrupted one.
	if len(shown.last.Archived) > 0 {
		if err := confirm(cmd, yes, "Move them?"); err != nil {
			return err
		}
	}
	request.DryRun = false
	err = client.ArchiveTrail(cmd.Context(), request, shown.report)
	shown.end()
	if err != nil {
		return errors.Join(err, errors.New("nothing is lost; given again, the command goes on"))
	}
	if len(shown.last.Archived) == 0 {
		return nil
	}
	return printArchived(cmd.OutOrStdout(), shown.last.Archived, "are moved")
}

func printArchived(w io.Writer, list []proof.Archived, verb string) error {
	if len(list) == 0 {
		_, err := fmt.Fprintln(w, "nothing to move: no full bundle of 256 entries is older, or not archived yet")
		return err
	}
	for _, a := range list {
		_, err := fmt.Fprintf(w, "log %s: entries %d to %d, %d files with %s, %s to %s\n",
			printable(a.Origin), a.From, a.To, a.Files, sizeText(a.Bytes), verb, printable(a.Where))
		if err != nil {
			return err
		}
	}
	return nil
}
