package file

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// stamp is the layout of the time in a rotated file's name: in UTC and of fixed length, so that
// names sort by age.
const stamp = "20060102T150405.000000000Z"

// The ends that a rotated file's name may have after its own extension.
const (
	packedExt  = ".gz"
	partialExt = ".gz.tmp"
)

// An archive is a rotated file in any of its forms. If a crash has left both, the plain one is
// the original.
type archive struct {
	name    string // the name of the plain form
	plain   bool   // the plain form is there
	packed  bool   // the compressed form is there, and complete
	partial bool   // a compression was interrupted
}

func (a archive) packedName() string  { return a.name + packedExt }
func (a archive) partialName() string { return a.name + partialExt }

// rotate gives the file its final name and opens an empty one.
//
// A crash after the rename leaves no file at s.cfg.Path, and the next open makes it. A crash before
// it leaves the file where it was, a little longer than intended.
func (s *Sink) rotate() error {
	if err := s.disk.sync(s.file); err != nil { // with NoSync something may not be synced yet
		return fmt.Errorf("sync before rotation: %w", err)
	}
	old, err := archives(s.cfg.Path)
	if err != nil {
		return err
	}
	s.release()
	name := rotatedName(s.cfg.Path, nextStamp(s.cfg.Path, old, time.Now()))
	if err := s.disk.rename(s.cfg.Path, name); err != nil {
		return fmt.Errorf("rotate: %w", err)
	}
	s.opts.Logger.Info("file rotated", "path", name, "bytes", s.size)
	if err := s.open(); err != nil {
		return err
	}
	s.removeOld(append(old, archive{name: name, plain: true}))
	return nil
}

// removeOld keeps the newest archives. After an error, the next rotation tries again.
func (s *Sink) removeOld(all []archive) {
	if s.cfg.Keep <= 0 || len(all) <= s.cfg.Keep {
		return
	}
	s.names.Lock() // so that a compression does not bring one back
	defer s.names.Unlock()
	for _, a := range all[:len(all)-s.cfg.Keep] {
		for _, name := range []string{a.partialName(), a.packedName(), a.name} {
			if err := s.disk.remove(name); err != nil && !os.IsNotExist(err) {
				s.opts.Logger.Warn("old file could not be removed", "path", name, "err", err)
			}
		}
	}
}

// rotatedName puts the time before the extension: events.jsonl becomes
// events-20261103T083000.000000000Z.jsonl.
func rotatedName(path string, at time.Time) string {
	ext := filepath.Ext(path)
	return strings.TrimSuffix(path, ext) + "-" + at.UTC().Format(stamp) + ext
}

// nextStamp returns now, or a time just after the newest of old if the clock was set back,
// since the names must stay in the order of the events.
func nextStamp(path string, old []archive, now time.Time) time.Time {
	if len(old) == 0 {
		return now
	}
	if last, ok := stampOf(path, old[len(old)-1].name); ok && !now.After(last) {
		return last.Add(1)
	}
	return now
}

func stampOf(path, name string) (time.Time, bool) {
	ext := filepath.Ext(path)
	text, ok := strings.CutPrefix(name, strings.TrimSuffix(path, ext)+"-")
	if !ok {
		return time.Time{}, false
	}
	text, ok = strings.CutSuffix(text, ext)
	at, err := time.Parse(stamp, text)
	return at, ok && err == nil
}

// archives lists the rotated files of path, oldest first.
func archives(path string) ([]archive, error) {
	dir := filepath.Dir(path)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("list rotated files: %w", err)
	}
	found := map[string]archive{}
	for _, entry := range entries {
		if !entry.Type().IsRegular() {
			continue
		}
		// The plain form comes first, since the extension of path may itself be .gz.
		for _, ext := range []string{"", packedExt, partialExt} {
			name, ok := strings.CutSuffix(filepath.Join(dir, entry.Name()), ext)
			if _, isStamp := stampOf(path, name); !ok || !isStamp {
				continue
			}
			a := found[name]
			a.name = name
			a.plain, a.packed, a.partial = a.plain || ext == "", a.packed || ext == packedExt, a.partial || ext == partialExt
			found[name] = a
			break
		}
	}
	return slices.SortedFunc(maps.Values(found), func(a, b archive) int { return strings.Compare(a.name, b.name) }), nil
}
