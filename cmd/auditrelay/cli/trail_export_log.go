package cli

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

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
	allowed := map[string]bool{"form": true, "dir": true, "config": true, "data-dir": true, "archive": true}
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if !allowed[f.Name] && err == nil {
			err = fmt.Errorf("--form tlog writes the whole trail, as its signatures cover all of it: leave --%s out", f.Name)
		}
	})
	return err
}

// exportLog copies the files that a relay keeps of its trail to dir.
func (f *trailFlags) exportLog(cmd *cobra.Command, dir string, archives []string) error {
	data, err := f.dir()
	if err != nil {
		return err
	}
	shown := newProgress(cmd.ErrOrStderr())
	list, err := tiles.Open(filepath.Join(data, tiles.Dir)).Export(cmd.Context(), dir, archives, shown.entries)
	shown.end()
	switch {
	case errors.Is(err, tiles.ErrArchived):
		return fmt.Errorf("%w, or name the archive with --archive DIR", err)
	case err != nil:
		return fmt.Errorf("%w; given again, the command goes on; damaged files are written again by the next start of the relay", err)
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
