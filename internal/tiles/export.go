package tiles

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"

	"github.com/auditrelay/auditrelay/internal/audit"
)

// Exported is one log of an export.
type Exported struct {
	Folder    string `json:"folder"`
	Origin    string `json:"origin"`
	PublicKey string `json:"public_key"` // of the signature on its newest checkpoint
	Size      int64  `json:"size"`
	Root      string `json:"root"`
}

// Export writes the logs of a trail's generations into a folder of their own, or brings an
// older or interrupted export there up to date. In the end it reads all files back, and
// holds them against the signed checkpoints. A folder with a symbolic link in it is refused:
// whoever planted one chose where to write. progress may be nil.
func Export(ctx context.Context, trail Trail, generations []audit.Generation, dir string, log *slog.Logger, progress func(entries int64)) ([]Exported, error) {
	if err := plain(dir); err != nil {
		return nil, fmt.Errorf("export the log: %w", err)
	}
	k := NewKeeper(Open(dir), trail, func() []audit.Generation { return generations }, log)
	k.wrote = progress
	var list []Exported
	for _, g := range generations {
		if g.Size == 0 {
			continue // nothing of it is signed
		}
		e, err := k.export(ctx, g)
		if err != nil {
			return nil, fmt.Errorf("export the log %s: %w", g.Origin, err)
		}
		list = append(list, e)
	}
	return list, nil
}

// plain refuses a folder that is a symbolic link, or has anything else than folders and files
// in it. A missing one is plain.
func plain(dir string) error {
	return filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		switch {
		case path == dir && errors.Is(err, fs.ErrNotExist):
			return nil
		case err != nil:
			return err
		case d.Type()&fs.ModeSymlink != 0:
			return fmt.Errorf("%s is a symbolic link; name another folder, or remove the link", path)
		case !d.IsDir() && !d.Type().IsRegular():
			return fmt.Errorf("%s is neither a file nor a folder; name another folder", path)
		}
		return nil
	})
}

func (k *Keeper) export(ctx context.Context, g audit.Generation) (Exported, error) {
	var l Log
	check := func() (err error) {
		if err = k.Run(ctx); err == nil {
			l, err = k.logOf(g)
		}
		if err == nil {
			err = l.Check(ctx, g.PublicKey, 0)
		}
		return err
	}
	err := check()
	if errors.Is(err, errDamaged) { // of an older export
		k.damaged(g.Base, l, err)
		err = check()
	}
	if err != nil {
		return Exported{}, err
	}
	_, c, err := l.Checkpoint()
	if err == nil && c.Size < g.Size {
		err = fmt.Errorf("%d of its %d signed entries are proven and written: %w for the rest", c.Size, g.Size, errUnproven)
	}
	return Exported{l.dir, c.Origin, g.PublicKey, c.Size, c.Root.String()}, err
}
