package disk

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/auditrelay/auditrelay/internal/store"
)

func isMissing(err error) bool { return errors.Is(err, fs.ErrNotExist) }

// maxSalvage bounds the folder for bytes that could not be read as records. What does not
// fit is named without being kept.
const maxSalvage = 1 << 30

// keep copies a part of a segment into the salvage folder, and returns the file's path. It
// returns "" where that fails, or nothing but zeros stands there: the damage is named all
// the same. The same part is kept once, however often it is read.
func (l *Log) keep(f file, base store.Pos, from, to int64) string {
	w := &window{f: f}
	if to = w.filled(from, to); to <= from || l.store.view {
		return ""
	}
	path := filepath.Join(l.store.cfg.Salvage, fmt.Sprintf("%s-%020d-%d-%d.bin", l.name, base, from, to))
	if err := l.store.keep(path, w, from, to); err != nil {
		l.log.Warn("keeping damaged bytes failed; the damage itself is named", "log", l.name, "file", path, "error", err)
		return ""
	}
	return path
}

func (s *Store) keep(path string, w *window, from, to int64) error {
	s.salvaging.Lock()
	defer s.salvaging.Unlock()
	if s.size(path) == to-from {
		return nil // it was kept before
	}
	if s.kept == 0 {
		s.kept = s.salvaged()
	}
	if s.kept+to-from > maxSalvage {
		return fmt.Errorf("the salvage folder %s has %d of %d bytes", s.cfg.Salvage, s.kept, maxSalvage)
	}
	if err := s.fs.MakeDir(s.cfg.Salvage); err != nil {
		return err
	}
	f, err := s.fs.Open(path, toMake)
	if err != nil {
		return err
	}
	for at := from; at < to && err == nil; {
		b := w.bytes(at, int(min(windowSize, to-at)))
		if len(b) == 0 {
			break
		}
		_, err = f.WriteAt(b, at-from)
		at += int64(len(b))
	}
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return errors.Join(err, s.fs.Remove(path))
	}
	s.kept += to - from
	return s.fs.SyncDir(s.cfg.Salvage)
}

// size is the size of a file, or -1 if there is none.
func (s *Store) size(path string) int64 {
	f, err := s.fs.Open(path, toRead)
	if err != nil {
		return -1
	}
	defer func() { _ = f.Close() }() // it was only asked for its size
	if size, err := f.Size(); err == nil {
		return size
	}
	return -1
}

// salvaged is how many bytes the salvage folder has.
func (s *Store) salvaged() (total int64) {
	names, _ := s.fs.Names(s.cfg.Salvage) // what cannot be read is not counted
	for _, name := range names {
		total += max(0, s.size(filepath.Join(s.cfg.Salvage, name)))
	}
	return total
}

// setAside moves a file that has no place in the log to the salvage folder. Where that fails, as
// on a full disk, the file stays, and is none of the log's all the same.
func (l *Log) setAside(name string) {
	if l.store.view {
		return
	}
	err := l.store.fs.MakeDir(l.store.cfg.Salvage)
	to := filepath.Join(l.store.cfg.Salvage, l.name+"-"+name)
	for n := 1; l.store.size(to) >= 0; n++ {
		to = filepath.Join(l.store.cfg.Salvage, fmt.Sprintf("%s-%s.%d", l.name, name, n))
	}
	if err == nil {
		err = l.store.fs.Rename(filepath.Join(l.dir, name), to)
	}
	if err == nil {
		err = l.store.fs.SyncDir(l.dir)
	}
	l.log.Warn("a file has no place in the log and is moved aside", "log", l.name, "file", name, "to", to, "error", err)
}
