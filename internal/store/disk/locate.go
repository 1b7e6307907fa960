package disk

import (
	"context"
	"path/filepath"
	"slices"
	"strings"

	"github.com/auditrelay/auditrelay/internal/store"
)

// Kind says what stands at a place.
type Kind string

// The kinds of places. A store's folder has a folder for each log, with its segments, its
// two marks and nothing else; and the files of the table, and the lock.
const (
	// Record is a record of a log: 48 bytes of header, then key and data, then 8 bytes of
	// checksum.
	Record Kind = "record"
	// Durable is a value of the table in one of its two copies.
	Durable Kind = "value"
	// Lazy is a value of the table that is written without a sync.
	Lazy Kind = "lazy value"
)

// Place is where something stands in the files of a store.
type Place struct {
	Kind Kind
	// Pos is the position of a record, or the revision of a value.
	Pos store.Pos
	// Key is the key of a record or a value.
	Key          string
	File         string
	Offset, Size int64
}

// Locate says where a log's records stand, file by file, in the order of their positions. With an empty name it does so for the table of the store.
func Locate(dir, log string) ([]Place, error) {
	s := &Store{fs: readOnlyFS{osFS{readOnly: true}}, view: true, dir: dir, boot: bootID(), log: discard}
	if log == "" {
		return locateTable(s)
	}
	r := &recovery{Log: newLog(s, log, store.Options{})}
	if err := r.find(); err != nil {
		return nil, err
	}
	var all []Place
	for i, seg := range r.found {
		last := ^store.Pos(0)
		if i+1 < len(r.found) {
			last = r.found[i+1].base - 1
		}
		places, err := s.locate(r.path(seg.base), Record, seg.seed, last)
		if err != nil {
			return nil, err
		}
		all = append(all, places...)
	}
	return all, nil
}

func locateTable(s *Store) (all []Place, err error) {
	for _, t := range []struct {
		name string
		kind Kind
		seed uint64
	}{{valuesFiles[0], Durable, valuesSeed}, {valuesFiles[1], Durable, valuesSeed}, {lazyFile, Lazy, seedFor(lazyPurpose)}} {
		places, err := s.locate(filepath.Join(s.dir, t.name), t.kind, t.seed, ^store.Pos(0))
		if err != nil {
			return nil, err
		}
		all = append(all, places...)
	}
	return all, nil
}

// locate finds the records of one file.
func (s *Store) locate(path string, kind Kind, seed uint64, last store.Pos) (all []Place, err error) {
	f, err := s.fs.Open(path, false)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // it was only read
	size, err := f.Size()
	if err != nil {
		return nil, err
	}
	w := &window{f: f}
	for at := int64(dataStart); ; {
		offset, h, ok := w.find(at, size, seed, 1, last)
		if !ok {
			return all, nil
		}
		at = offset + 1
		var record store.Record
		if w.record(offset, &h, seed, &record) {
			all = append(all, Place{Kind: kind, Pos: h.pos, Key: record.Key, File: path, Offset: offset, Size: h.size()})
			at = offset + h.size()
		}
	}
}

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
