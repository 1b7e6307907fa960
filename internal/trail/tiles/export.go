package tiles

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
)

// Exported is one log of an export.
type Exported struct {
	Folder    string `json:"folder"`
	Origin    string `json:"origin"`
	PublicKey string `json:"public_key"` // of the signature on its newest checkpoint
	Size      int64  `json:"size"`
	Root      string `json:"root"`
}

// Export copies the logs of the store, as they are now, into a folder of their own, or brings an
// older or interrupted export there up to date. Of entries that were moved to an archive, the folder
// has to have the files. All files are read before and after, and held against the signed checkpoints. A
// folder with a symbolic link in it is refused: whoever planted one chose where to write. progress
// may be nil.
func (s *Store) Export(ctx context.Context, dir string, progress func(done, total int64)) ([]Exported, error) {
	if err := plain(dir); err != nil {
		return nil, err
	}
	copies, total, err := s.copies()
	if err != nil {
		return nil, err
	}
	if progress == nil {
		progress = func(int64, int64) {}
	}
	var list []Exported
	done, taken := int64(0), map[string]Log{}
	for _, m := range copies {
		m.wrote = func(entries int64) { progress(done+entries, total) }
		origin := m.upTo.Origin
		taken[origin], err = Open(dir).logOf(origin, m.publicKey, taken)
		if m.to = taken[origin]; err == nil {
			err = m.export(ctx)
		}
		if err != nil {
			return nil, fmt.Errorf("export the log %s: %w", origin, err)
		}
		done += m.upTo.Size
		list = append(list, Exported{m.to.dir, origin, m.publicKey, m.upTo.Size, m.upTo.Root.String()})
	}
	return list, nil
}

// copies are the logs of the store that have signed entries, to be copied up to their newest
// checkpoint, and the number of these entries.
func (s *Store) copies() (copies []copying, total int64, err error) {
	list, err := s.Logs()
	for _, listed := range list {
		l := s.Log(listed.Number)
		line, err := l.lastLine(false)
		if err != nil {
			return nil, 0, err
		}
		m := copying{from: l, publicKey: line.Key}
		if m.note, m.upTo, err = l.signed(line.Key); err != nil {
			return nil, 0, fmt.Errorf("%s: %w", l.dir, err)
		}
		if m.upTo.Size > 0 {
			copies = append(copies, m)
			total += m.upTo.Size
		}
	}
	return copies, total, err
}

// plain refuses a folder that is a symbolic link, or has anything else than folders and files
// in it. A missing one is plain.
func plain(dir string) error {
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
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
	if err != nil {
		return fmt.Errorf("write to %s: %w", dir, err)
	}
	return nil
}
