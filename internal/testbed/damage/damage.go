// Package damage harms the files of a relay's store, as disks, file systems and people do.
// The faults are named by what they mean: a record that rots, an end that is lost, a file
// that stands in another's place. Most of them are for the files of a relay that does not
// run; rot and missing files also befall one that does.
package damage

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/klauspost/compress/s2"

	"github.com/auditrelay/auditrelay/internal/testbed/places"
)

// Table stands for the table in place of a log's name.
const Table = ""

const pageSize = 4096

// Place says what stands in the files of a store, and where.
type Place = places.Place

// Kind says what stands at a place.
type Kind = places.Kind

// The kinds of places.
const (
	Record  = places.Record
	Durable = places.Durable
	Lazy    = places.Lazy
)

// Store is the folder of a store.
type Store string

// Of is the store in a relay's data directory.
func Of(dataDir string) Store { return Store(filepath.Join(dataDir, "store")) }

// Places are all that stands in the files of a log, or of the table, of one kind.
func (s Store) Places(log string, kind Kind) ([]Place, error) {
	all, err := places.In(string(s), log)
	if err != nil {
		return nil, fmt.Errorf("locate what the log %q holds: %w", log, err)
	}
	return slices.DeleteFunc(all, func(p Place) bool { return p.Kind != kind }), nil
}

// Records are the whole records of a log, by position.
func (s Store) Records(log string) ([]Place, error) { return s.Places(log, Record) }

// place is one of those that Places gives. From the end it is counted with -1, -2 and so on.
func (s Store) place(log string, kind Kind, k int) (Place, error) {
	all, err := s.Places(log, kind)
	if k < 0 {
		k += len(all)
	}
	if err == nil && (k < 0 || k >= len(all)) {
		err = fmt.Errorf("the log %q has %d places of the kind %q, and no number %d", log, len(all), kind, k)
	}
	if err != nil {
		return Place{}, err
	}
	return all[k], nil
}

// FlipRecord changes one bit in the middle of the k-th record of a log, counted from 0, or
// from the end with -1, -2 and so on.
func (s Store) FlipRecord(log string, k int) (Place, error) {
	at, err := s.place(log, Record, k)
	if err != nil {
		return at, err
	}
	return at, Flip(at.File, at.Offset+at.Size/2)
}

// FlipValue changes one bit of each copy of a value of the table.
func (s Store) FlipValue(key string) error {
	flipped := 0
	for _, kind := range []Kind{Durable, Lazy} {
		all, err := s.Places(Table, kind)
		if err != nil {
			return err
		}
		for _, at := range all {
			if at.Key != key {
				continue
			}
			if err := Flip(at.File, at.Offset+at.Size/2); err != nil {
				return err
			}
			flipped++
		}
	}
	if flipped == 0 {
		return fmt.Errorf("the table has no value %q", key)
	}
	return nil
}

// CopyValue writes the newest lazy value of one key over the slots of another, as a
// misdirected write does.
func (s Store) CopyValue(from, over string) error {
	all, err := s.Places(Table, Lazy)
	if err != nil {
		return err
	}
	var newest Place
	for _, at := range all {
		if at.Key == from && at.Pos >= newest.Pos {
			newest = at
		}
	}
	if newest.File == "" {
		return fmt.Errorf("the table has no lazy value %q", from)
	}
	b, err := read(newest.File, newest.Offset, newest.Size)
	for _, at := range all {
		if at.Key == over && err == nil {
			err = write(at.File, at.Offset, b)
		}
	}
	return err
}

// LoseTail cuts the last n records off a log, as a lost end of the newest file does. It
// gives what they were, the oldest first.
func (s Store) LoseTail(log string, n int) ([]Place, error) {
	all, err := s.Records(log)
	if err != nil {
		return nil, err
	}
	lost := all[max(0, len(all)-n):]
	for i := len(lost) - 1; i >= 0; i-- {
		if err := os.Truncate(lost[i].File, lost[i].Offset); err != nil {
			return nil, err
		}
	}
	return lost, nil
}

// LoseFolder removes the folder of a log, or the table.
func (s Store) LoseFolder(log string) error {
	if log == Table {
		files, err := s.files(".")
		for _, name := range files {
			if filepath.Ext(name) != ".end" { // the mark of a log
				err = errors.Join(err, os.Remove(filepath.Join(string(s), name)))
			}
		}
		return err
	}
	if _, err := os.Stat(filepath.Join(string(s), log)); err != nil {
		return err
	}
	return os.RemoveAll(filepath.Join(string(s), log))
}

// files are the names of the files in a folder of the store, without the lock.
func (s Store) files(dir string) (names []string, err error) {
	entries, err := os.ReadDir(filepath.Join(string(s), dir))
	for _, e := range entries {
		if e.Type().IsRegular() && e.Name() != "lock" {
			names = append(names, filepath.Join(dir, e.Name()))
		}
	}
	return names, err
}

// Files are all files of the store, relative to its folder.
func (s Store) Files() (all []string, err error) {
	err = fs.WalkDir(os.DirFS(string(s)), ".", func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() && path != "lock" {
			all = append(all, path)
		}
		return err
	})
	return all, err
}

// Segments are the files with the records of a log, the oldest first.
func (s Store) Segments(log string) ([]string, error) {
	all, err := filepath.Glob(filepath.Join(string(s), log, "*.seg"))
	slices.Sort(all)
	return all, err
}

// Hit are the places of one kind that have bytes in a stretch of a file.
func (s Store) Hit(log string, kind Kind, file string, from, size int64) ([]Place, error) {
	all, err := s.Places(log, kind)
	return slices.DeleteFunc(all, func(p Place) bool {
		return p.File != file || p.Offset >= from+size || from >= p.Offset+p.Size
	}), err
}

// EventIDs are the ids of the events in a record of the journal. They are looked for in the
// text, so that a test does not rest on the decoder that it tests.
func EventIDs(at Place) (ids []string, err error) {
	const before, after, header = 48, 8, 40 // of a record in the file; of the journal's, before its S2 block
	b, err := read(at.File, at.Offset+before, at.Size-before-after)
	if err != nil {
		return nil, err
	}
	if b = b[len(at.Key):]; len(b) < header {
		return nil, fmt.Errorf("the record at position %d has %d bytes", at.Pos, len(b))
	}
	text, err := s2.Decode(nil, b[header:])
	if err != nil {
		return nil, fmt.Errorf("decompress the record at position %d: %w", at.Pos, err)
	}
	for {
		_, rest, found := bytes.Cut(text, []byte(`"event_id":"`))
		if !found {
			return ids, nil
		}
		id, rest, _ := bytes.Cut(rest, []byte{'"'})
		ids, text = append(ids, string(id)), rest
	}
}

// Flip changes one bit of a file.
func Flip(path string, offset int64) error {
	b, err := read(path, offset, 1)
	if err != nil {
		return err
	}
	return write(path, offset, []byte{b[0] ^ 4})
}

// ZeroPage makes the page of a file with this offset read as zeros.
func ZeroPage(path string, offset int64) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	from := offset / pageSize * pageSize
	return write(path, from, make([]byte, min(pageSize, info.Size()-from)))
}

// SwapPages exchanges two pages of a file.
func SwapPages(path string, one, other int64) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	one, other = one/pageSize*pageSize, other/pageSize*pageSize
	size := min(pageSize, info.Size()-one, info.Size()-other)
	a, errA := read(path, one, size)
	b, errB := read(path, other, size)
	if err := errors.Join(errA, errB); err != nil {
		return err
	}
	return errors.Join(write(path, one, b), write(path, other, a))
}

// CopyOver puts a copy of one file in the place of another.
func CopyOver(from, over string) error {
	b, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(over, b, 0o600)
}

// CopyDir copies a folder with all files in it, but no sockets.
func CopyDir(from, to string) error {
	return fs.WalkDir(os.DirFS(from), ".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir():
			return os.MkdirAll(filepath.Join(to, path), 0o700)
		case d.Type().IsRegular():
			return CopyOver(filepath.Join(from, path), filepath.Join(to, path))
		}
		return nil
	})
}

// Swap exchanges two files, or two folders.
func Swap(one, other string) error {
	aside := one + ".aside"
	return errors.Join(os.Rename(one, aside), os.Rename(other, one), os.Rename(aside, other))
}

func read(path string, offset, size int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	b := make([]byte, size)
	_, err = f.ReadAt(b, offset)
	return b, errors.Join(err, f.Close())
}

func write(path string, offset int64, b []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(b, offset)
	return errors.Join(err, f.Close())
}
