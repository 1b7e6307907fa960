package disk

import (
	"context"
	"path/filepath"
	"slices"
	"strings"

	"github.com/auditrelay/auditrelay/internal/store"
)

// Logs names the logs of the store.
func (s *Store) Logs(ctx context.Context) ([]string, error) { return Logs(ctx, s.dir, s.table) }

// Logs names the logs of the store in a folder, with those that only its table remembers. A
// folder without a log's files is none.
func Logs(ctx context.Context, dir string, table store.Table) ([]string, error) {
	var logs []string
	names, err := (osFS{}).Names(dir)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		files, err := (osFS{}).Names(filepath.Join(dir, name))
		if err == nil && slices.ContainsFunc(files, isOfLog) {
			logs = append(logs, name)
		}
	}
	known, err := table.List(ctx, logPrefix)
	for _, value := range known {
		logs = append(logs, strings.TrimPrefix(value.Key, logPrefix))
	}
	slices.Sort(logs)
	return slices.Compact(logs), err
}

func isOfLog(file string) bool {
	_, isSegment := baseOf(file)
	return isSegment || file == endFile || file == firstFile
}
