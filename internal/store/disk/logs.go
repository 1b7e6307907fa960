package disk

import (
	"context"
	"path/filepath"
	"slices"
	"strings"
)

// Logs implements [store.Store]. The table remembers logs whose files are lost. A folder without a
// log's files is none.
func (s *Store) Logs(ctx context.Context) ([]string, error) {
	var logs []string
	names, err := s.fs.Names(s.dir)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		files, err := s.fs.Names(filepath.Join(s.dir, name))
		if err == nil && slices.ContainsFunc(files, isOfLog) {
			logs = append(logs, name)
		}
	}
	known, err := s.table.List(ctx, logPrefix)
	for _, value := range known {
		logs = append(logs, strings.TrimPrefix(value.Key, logPrefix))
	}
	slices.Sort(logs)
	return slices.Compact(logs), err
}

func isOfLog(file string) bool {
	_, isSegment := baseOf(file)
	return isSegment || file == endFile
}
