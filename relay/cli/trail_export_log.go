package cli

import (
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/app"
	"github.com/auditrelay/auditrelay/internal/audit"
	"github.com/auditrelay/auditrelay/internal/console"
	"github.com/auditrelay/auditrelay/internal/tiles"
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
func (f *trailFlags) exportLog(cmd *cobra.Command, dir string, archives []string) (err error) {
	trail, generations, done, err := f.openLogs(cmd, archives)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, done()) }()
	total := uint64(0)
	for _, g := range generations {
		total += uint64(g.Size)
	}
	if total == 0 {
		return errors.New("the trail has no signed entries yet")
	}
	shown := newProgress(cmd.ErrOrStderr())
	log := slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), &slog.HandlerOptions{Level: slog.LevelWarn}))
	list, err := tiles.Export(cmd.Context(), trail, generations, dir, log, func(entries int64) {
		shown.report(&console.Progress{Done: uint64(entries), Total: total, Unit: "entries"})
	})
	shown.end()
	if errors.Is(err, tiles.ErrArchived) {
		return fmt.Errorf("%w, or name the archive with --archive DIR", err)
	}
	if err != nil {
		return fmt.Errorf("%w; given again, the command goes on", err)
	}
	for _, e := range list {
		_, err := fmt.Fprintf(cmd.OutOrStdout(), "%s: %d entries of %s, root %s, signed by the key %s\n", e.Folder, e.Size, e.Origin, e.Root, e.PublicKey)
		if err != nil {
			return err
		}
	}
	return nil
}

// openLogs opens the source of an export: the files kept by a relay, or with --offline the
// streams of a stopped one.
func (f *trailFlags) openLogs(cmd *cobra.Command, archives []string) (tiles.Trail, []audit.Generation, func() error, error) {
	if f.offline {
		return f.openStreams(cmd)
	}
	dir := f.dataDir
	if dir == "" {
		var err error
		if dir, err = config.DataDir(f.config); err != nil {
			return nil, nil, nil, err
		}
	}
	source, err := tiles.Open(filepath.Join(dir, tiles.Dir)).Source()
	if err != nil {
		return nil, nil, nil, fmt.Errorf("%w; with --offline the export is made from the stopped relay's streams", err)
	}
	for _, archive := range archives {
		if err := source.Archived(archive); err != nil {
			return nil, nil, nil, err
		}
	}
	return source, source.Generations(), func() error { return nil }, nil
}

func (f *trailFlags) openStreams(cmd *cobra.Command) (tiles.Trail, []audit.Generation, func() error, error) {
	journal := journalFlags{kinds: f.kinds, file: f.config, dataDir: f.dataDir}
	cfg, err := journal.config()
	if err != nil {
		return nil, nil, nil, err
	}
	trail, err := readTrail(cmd.Context(), cfg)
	if err != nil {
		return nil, nil, nil, err
	}
	report, _, err := audit.VerifyOffline(cmd.Context(), app.TrailOptions(cfg), trail)
	if err != nil {
		trail.Close()
		return nil, nil, nil, err
	}
	return trail, report.Generations, func() error { trail.Close(); return nil }, nil
}
