package disk

import (
	"context"
	"path/filepath"
	"slices"
	"strings"
)

// Logs implements [store.Store]. A log has an end mark, or a folder with segments.
func (s *Store) Logs(context.Context) (logs []string, err error) {
	names, err := s.fs.Names(s.cfg.Dir)
	for _, name := range names {
		if log, isMark := strings.CutSuffix(name, endSuffix); isMark {
			logs = append(logs, log)
		} else if files, err := s.fs.Names(filepath.Join(s.cfg.Dir, name)); err == nil && slices.ContainsFunc(files, isSegment) {
			logs = append(logs, name)
		}
	}
	slices.Sort(logs)
	return slices.Compact(logs), err
}

func isSegment(file string) bool {
	_, is := baseOf(file)
	return is
}
