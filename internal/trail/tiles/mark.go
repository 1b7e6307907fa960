package tiles

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"

	"github.com/auditrelay/auditrelay/internal/store/durable"
	"github.com/auditrelay/auditrelay/internal/trail/proof"
)

// MarkFile names the archives of a log, as a JSON list of [proof.Archived].
const MarkFile = "archived"

// ErrArchived marks an entry whose bundle was moved to an archive.
var ErrArchived = errors.New("it was archived")

// Archives lists the archives of the log. A lost mark is an empty list: the bundles are
// written again from the trail.
func (l Log) Archives() ([]proof.Archived, error) {
	text, err := durable.ReadFile(l.path(MarkFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var list []proof.Archived
	if err == nil {
		err = json.Unmarshal(text, &list)
	}
	if err != nil {
		return nil, fmt.Errorf("read the list of archives %s: %w; without it the relay writes the archived bundles again", l.path(MarkFile), err)
	}
	return list, nil
}

// archivedEnd is the number of entries, from the first one on, in archives. A damaged mark
// counts as a lost one.
func (l Log) archivedEnd() (end int64) {
	list, _ := l.Archives()
	for _, a := range list {
		end = max(end, a.Size)
	}
	return end
}

// mark adds an archive to the list.
func (l Log) mark(a proof.Archived) error {
	list, err := l.Archives()
	if err != nil {
		return err
	}
	for _, old := range list {
		if old.Size == a.Size && old.Where == a.Where {
			return nil
		}
	}
	text, err := json.MarshalIndent(append(list, a), "", "  ")
	if err != nil {
		return fmt.Errorf("write the list of archives: %w", err)
	}
	return durable.WriteFile(l.path(MarkFile), append(text, '\n'))
}

// missing is the error for a missing bundle.
func (l Log) missing(n int64, err error) error {
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	list, _ := l.Archives()
	for _, a := range list {
		if n*proof.TileWidth < a.Size {
			return fmt.Errorf("%w: %w to %s: put its files back from there", err, ErrArchived, a.Where)
		}
	}
	return err
}
