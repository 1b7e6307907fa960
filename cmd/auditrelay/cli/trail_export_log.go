package cli

import (
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/auditrelay/auditrelay/internal/app"
	"github.com/auditrelay/auditrelay/internal/control/console"
	"github.com/auditrelay/auditrelay/internal/trail/audit"
	"github.com/auditrelay/auditrelay/internal/trail/tiles"
)

// checkExport refuses flags of another form.
func checkExport(cmd *cobra.Command, form, dir string) (err error) {
	switch {
	case form == "tlog" && dir == "":
		return errors.New("--form tlog needs --dir, the folder to write to")
	case form != "tlog" && dir != "":
		return errors.New("--dir needs --form tlog")
	case form != "tlog" && cmd.Flags().Changed("archive"):
		return errors.New("--archive needs --form tlog; JSON lines come from the trail's stream, with all entries")
	case form != "tlog":
		return nil
	}
	allowed := map[string]bool{"form": true, "dir": true, "config": true, "data-dir": true, "offline": true, "archive": true}
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if !allowed[f.Name] && err == nil {
			err = fmt.Errorf("--form tlog writes the whole trail, as its signatures cover all of it: leave --%s out", f.Name)
		}
	})
	return err
}

// exportLog writes the trail's logs into dir.
func (f *trailFlags) exportLog(cmd *cobra.Command, dir string, archives []string) error {
	shown := newProgress(cmd.ErrOrStderr())
	progress := func(done, total int64) {
		shown.report(&console.Progress{Done: uint64(done), Total: uint64(total), Unit: "entries"})
	}
	export := f.exportFiles
	if f.offline {
		export = f.exportLogs
	}
	list, err := export(cmd, dir, archives, progress)
	shown.end()
	switch {
	case errors.Is(err, tiles.ErrArchived):
		return fmt.Errorf("%w, or name the archive with --archive DIR", err)
	case err != nil:
		return fmt.Errorf("%w; given again, the command goes on", err)
	case len(list) == 0:
		return errors.New("the trail has no signed entries yet")
	}
	for _, e := range list {
		_, err := fmt.Fprintf(cmd.OutOrStdout(), "%s: %d entries of %s, root %s, signed by the key %s\n", e.Folder, e.Size, e.Origin, e.Root, e.PublicKey)
		if err != nil {
			return err
		}
	}
	return nil
}

// exportFiles copies the files that a relay keeps.
func (f *trailFlags) exportFiles(cmd *cobra.Command, dir string, archives []string, progress func(done, total int64)) ([]tiles.Exported, error) {
	data, err := f.dir()
	if err != nil {
		return nil, err
	}
	list, err := tiles.Open(filepath.Join(data, tiles.Dir)).Export(cmd.Context(), dir, archives, progress)
	if err != nil && !errors.Is(err, tiles.ErrArchived) && cmd.Context().Err() == nil {
		err = fmt.Errorf("%w; with --offline the export is made from the stopped relay's logs", err)
	}
	return list, err
}

// exportLogs writes the files of a stopped relay's trail from its logs in the store.
func (f *trailFlags) exportLogs(cmd *cobra.Command, dir string, _ []string, progress func(done, total int64)) ([]tiles.Exported, error) {
	cfg, trail, err := f.openTrail(cmd.Context())
	if err != nil {
		return nil, err
	}
	defer trail.Close()
	report, _, err := audit.VerifyOffline(cmd.Context(), app.TrailOptions(cfg), trail)
	if err != nil {
		return nil, err
	}
	log := slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), &slog.HandlerOptions{Level: slog.LevelWarn}))
	return tiles.Export(cmd.Context(), trail, report.Generations, dir, log, progress)
}
