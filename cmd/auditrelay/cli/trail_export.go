package cli

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/auditrelay/auditrelay/internal/control/console"
	"github.com/auditrelay/auditrelay/internal/trail/proof"
	"github.com/auditrelay/auditrelay/internal/trail/tiles"
	"github.com/auditrelay/auditrelay/internal/trail/timeline"
)

func (p Program) newTrailExport() *cobra.Command {
	which := exportFlags{trailFlags: p.trail()}
	var chosen entryFlags
	var path string
	return command("trail export", &which, func(cmd *cobra.Command, _ []string, source trailSource) error {
		if which.form.value == "tlog" {
			return which.exportLog(cmd, which.dir)
		}
		count := 0
		err := writeTo(path, cmd.OutOrStdout(), func(w io.Writer) (err error) {
			count, err = timeline.Export(cmd.Context(), w, source, chosen.filter, which.form.value)
			return err
		})
		if err != nil {
			return err
		}
		return say(cmd.ErrOrStderr(), "%d entries exported", count)
	}, &chosen, text(&path, "file", "write to a new `FILE` instead of standard output"))
}

// exportFlags name the trail and the form of its export.
type exportFlags struct {
	*trailFlags
	form outputFlag
	dir  string
}

func (f *exportFlags) addTo(cmd *cobra.Command) {
	f.trailFlags.addTo(cmd)
	f.form.value, f.form.allowed = "jsonl", []string{"jsonl", "csv", "tlog"}
	withFlags(cmd, parsed(&f.form, "form", "`FORM` of the export: jsonl, csv, tlog"),
		text(&f.dir, "dir", "with --form tlog: the `DIR` to write to"),
		check(func() error { return checkExport(cmd, f.form.value, f.dir) }))
}

// open asks nobody for the form tlog.
func (f *exportFlags) open(cmd *cobra.Command) (trailSource, error) {
	if f.form.value == "tlog" {
		return nil, nil
	}
	return f.trailFlags.open(cmd)
}

// checkExport refuses flags of another form.
func checkExport(cmd *cobra.Command, form, dir string) (err error) {
	switch {
	case form == "tlog" && dir == "":
		return errors.New("--form tlog needs --dir, the folder to write to")
	case form != "tlog" && dir != "":
		return errors.New("--dir needs --form tlog")
	case form != "tlog":
		return nil
	}
	allowed := map[string]bool{"form": true, "dir": true, "config": true, "data-dir": true}
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if !allowed[f.Name] && err == nil {
			err = fmt.Errorf("--form tlog writes the whole trail, as its signatures cover all of it: leave --%s out", f.Name)
		}
	})
	return err
}

// exportLog copies the files that a relay keeps of its trail to dir.
func (f *trailFlags) exportLog(cmd *cobra.Command, dir string) error {
	data, err := f.dir()
	if err != nil {
		return err
	}
	shown := newProgress(cmd.ErrOrStderr())
	list, err := tiles.Open(filepath.Join(data, tiles.Dir)).Export(cmd.Context(), dir, shown.entries)
	shown.end()
	switch {
	case errors.Is(err, tiles.ErrArchived):
		return fmt.Errorf("%w, or copy the archive to %s: the export goes on there", err, dir)
	case err != nil:
		return fmt.Errorf("%w; given again, the command goes on; damaged files are written again by the next start of the relay", err)
	case len(list) == 0:
		return errors.New("the trail has no signed entries yet")
	}
	for _, e := range list {
		if err := say(cmd.OutOrStdout(), "%s: %d entries of %s, root %s, signed by the key %s", e.Folder, e.Size, e.Origin, e.Root, e.PublicKey); err != nil {
			return err
		}
	}
	return nil
}

func newTrailArchive() *cobra.Command {
	var beforeTime timeFlag
	var dir string
	var yes, dryRun bool
	return command("trail archive", &relayFlags{}, func(cmd *cobra.Command, _ []string, client *console.Client) error {
		to, err := filepath.Abs(dir)
		if err != nil {
			return err
		}
		return archiveTrail(cmd, client, console.ArchiveTrail{Before: beforeTime.time, Dir: to}, yes, dryRun)
	}, parsed(&beforeTime, "before", "move what was made before this time; "+timeFlagHelp),
		text(&dir, "to", "the archive's `DIR`: an empty folder, or an earlier archive or export of this trail"),
		onOff(&dryRun, "dry-run", "only say what would be moved"), yesFlag(&yes), needed{"before", "to"})
}

func archiveTrail(cmd *cobra.Command, client *console.Client, request console.ArchiveTrail, yes, dryRun bool) error {
	request.DryRun = true
	p, err := watched(cmd, client.ArchiveTrail, request)
	if err != nil {
		return err
	}
	if err := printArchived(cmd.OutOrStdout(), p.Archived, "would be moved"); err != nil || dryRun {
		return err
	}
	// With nothing to move, a run removes the leftovers of an interrupted one.
	if len(p.Archived) > 0 {
		if err := confirm(cmd, yes, "Move them?"); err != nil {
			return err
		}
	}
	request.DryRun = false
	p, err = watched(cmd, client.ArchiveTrail, request)
	if err != nil {
		return errors.Join(err, errors.New("nothing is lost; given again, the command goes on"))
	}
	if len(p.Archived) == 0 {
		return nil
	}
	return printArchived(cmd.OutOrStdout(), p.Archived, "are moved")
}

func printArchived(w io.Writer, list []proof.Archived, verb string) error {
	if len(list) == 0 {
		return say(w, "nothing to move: no full bundle of 256 entries is older, or not archived yet")
	}
	return show(w, list, func(p *page, list []proof.Archived) {
		for _, a := range list {
			p.line("log %s: entries %d to %d, %d files with %s, %s to %s",
				printable(a.Origin), a.From, a.To, a.Files, sizeText(a.Bytes), verb, printable(a.Where))
		}
	})
}
