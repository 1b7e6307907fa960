package file

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// stamp is the time in a rotated file's name: in UTC, of one length, so that
// names sort by age.
const stamp = "20060102T150405.000000000Z"

// rotate gives the file its name for good and opens an empty one.
//
// A crash behind the rename leaves no file at s.path: the next open makes it.
// One before it leaves the file where it was, a little over its time.
func (s *Sink) rotate() error {
	if err := s.disk.sync(s.file); err != nil { // NoSync may have left something
		return fmt.Errorf("sync before rotation: %w", err)
	}
	old, err := rotated(s.path)
	if err != nil {
		return err
	}
	s.release()
	name := rotatedName(s.path, nextStamp(s.path, old, time.Now()))
	if err := os.Rename(s.path, name); err != nil {
		return fmt.Errorf("rotate: %w", err)
	}
	s.logger.Info("file rotated", "path", name, "bytes", s.size)
	if err := s.open(); err != nil {
		return err
	}
	s.removeOld(append(old, name))
	return nil
}

// removeOld keeps the newest files. One that cannot be removed now is tried
// again at the next rotation.
func (s *Sink) removeOld(names []string) {
	if s.keep <= 0 || len(names) <= s.keep {
		return
	}
	for _, name := range names[:len(names)-s.keep] {
		if err := os.Remove(name); err != nil {
			s.logger.Warn("old file could not be removed", "path", name, "err", err)
		}
	}
}

// rotatedName puts the time before the extension: events.jsonl becomes
// events-20261103T083000.000000000Z.jsonl.
func rotatedName(path string, at time.Time) string {
	ext := filepath.Ext(path)
	return strings.TrimSuffix(path, ext) + "-" + at.UTC().Format(stamp) + ext
}

// nextStamp is now, or just behind the newest of old where the clock was set
// back: the names must stay in the order of the events.
func nextStamp(path string, old []string, now time.Time) time.Time {
	if len(old) == 0 {
		return now
	}
	if last, ok := stampOf(path, old[len(old)-1]); ok && !now.After(last) {
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

// rotated lists the rotated files of path, oldest first.
func rotated(path string) ([]string, error) {
	dir := filepath.Dir(path)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("list rotated files: %w", err)
	}
	var names []string
	for _, entry := range entries {
		name := filepath.Join(dir, entry.Name())
		if _, ok := stampOf(path, name); ok && entry.Type().IsRegular() {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names, nil
}
