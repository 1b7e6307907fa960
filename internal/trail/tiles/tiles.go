// Package tiles keeps the audit trail as files for public tools: one log in the layout of
// C2SP tlog-tiles (https://c2sp.org/tlog-tiles) for each generation of the trail.
//
//	N/checkpoint        the newest signed note (C2SP tlog-checkpoint)
//	N/tile/L/…          tiles of the Merkle tree, of height 8
//	N/tile/entries/…    bundles of 256 entries
//	N/records/SHA256    records too long for a bundle; it has their digests
//	N/checkpoints       the history of checkpoints, as JSON lines
//
// N counts the generations from 0, in the order of their first writing here.
//
// The files are derived: a [Keeper] follows the trail and writes them, each from entries
// and hashes proven by a signed root. It writes lost and damaged files again, and completes
// the history. They are a second copy of the entries, too: see [Store.Records]. The log never
// contradicts itself: a checkpoint that is no part of the newest one's tree is logged, and not
// published.
//
// Of a partial tile only the widest file is kept. [Handler] cuts narrower ones from it.
package tiles

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/auditrelay/auditrelay/internal/store/durable"
	"github.com/auditrelay/auditrelay/internal/trail/proof"
)

// Dir is the folder's name in a data directory.
const Dir = proof.FilesDir

// Store is the folder of all logs. Its methods may be called concurrently.
type Store struct{ dir string }

// Open opens a store; the folder need not exist.
func Open(dir string) *Store { return &Store{dir} }

// Listed is a log of the store.
type Listed struct {
	// Number is the folder's name.
	Number int `json:"number"`
	// Origin, Size and Root are those of its newest checkpoint.
	Origin string `json:"origin"`
	Size   int64  `json:"size"`
	Root   string `json:"root"`
}

// Logs lists the logs with a readable checkpoint, by number.
func (s *Store) Logs() ([]Listed, error) {
	files, err := os.ReadDir(s.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list logs of the trail: %w", err)
	}
	var list []Listed
	for _, f := range files {
		number, err := strconv.Atoi(f.Name())
		if err != nil || strconv.Itoa(number) != f.Name() || number < 0 {
			continue
		}
		if c, err := s.Log(number).newest(); err == nil {
			list = append(list, Listed{number, c.Origin, c.Size, c.Root.String()})
		}
	}
	slices.SortFunc(list, func(a, b Listed) int { return a.Number - b.Number })
	return list, nil
}

// Log is the log with a number.
func (s *Store) Log(number int) Log {
	return Log{filepath.Join(s.dir, strconv.Itoa(number))}
}

// newest is the newest checkpoint, from the history where the file is lost.
func (l Log) newest() (proof.Checkpoint, error) {
	_, c, err := l.Checkpoint()
	if err == nil {
		return c, nil
	}
	line, lineErr := l.lastLine(false)
	if lineErr != nil {
		return c, errors.Join(err, lineErr)
	}
	return proof.ReadCheckpoint([]byte(line.Checkpoint))
}

// logOf gives the log with an origin, or else the first free number. The log of another
// key stays as it is: a trail put back to an earlier state may give an origin twice, and
// must not write over the forgotten entries.
func (s *Store) logOf(origin, publicKey string, taken map[string]Log) (Log, error) {
	if l, known := taken[origin]; known {
		return l, nil
	}
	if err := durable.MakeDir(s.dir); err != nil {
		return Log{}, err
	}
	list, err := s.Logs()
	if err != nil {
		return Log{}, err
	}
	used := map[string]bool{}
	for _, l := range taken {
		used[l.dir] = true // it may have no checkpoint yet
	}
	for _, l := range list {
		if l.Origin == origin && !s.Log(l.Number).isOfAnother(publicKey) {
			return s.Log(l.Number), nil
		}
		used[s.Log(l.Number).dir] = true
	}
	free := 0
	for used[s.Log(free).dir] {
		free++
	}
	return s.Log(free), nil
}

// isOfAnother reports whether another key, named by the history, has signed the newest
// checkpoint. A damaged log is of nobody.
func (l Log) isOfAnother(publicKey string) bool {
	line, err := l.lastLine(false)
	if err != nil || publicKey == "" || line.Key == publicKey {
		return false
	}
	if _, _, err = l.signed(line.Key); err != nil {
		_, _, err = proof.OpenAs(line.Key, []byte(line.Checkpoint))
	}
	return err == nil
}
