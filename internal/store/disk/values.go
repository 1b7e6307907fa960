package disk

import (
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/auditrelay/auditrelay/internal/store"
)

// values are the durable entries of the table, in two files. Each put appends to both, so
// that damage to one of them costs nothing: what one cannot give, the other can. Each frame
// carries its index in the file, so a frame that neither can give is noticed.
type values struct {
	fs     filesystem
	dir    string
	writer string
	log    *slog.Logger
	copies [2]file
	offset int64
	frames int  // in each of the files
	stale  bool // the files have to be written again before the next put
	// generation counts how often the files were written again.
	generation store.Pos
}

var valuesSeed = sum(0, []byte("durable values"))

// epoch is the time of frames that need none.
var epoch = time.Unix(0, 0)

var valuesFiles = [2]string{"values.a", "values.b"}

func (v *values) path(i int) string { return filepath.Join(v.dir, valuesFiles[i]) }

func openValues(s *Store, into map[string]entry) (*values, error) {
	v := &values{fs: s.fs, dir: s.dir, writer: s.writer, log: s.log}
	var found [2]*valuesFile
	for i := range found {
		var err error
		if found[i], err = v.read(i, into); err != nil {
			return nil, err
		}
		v.generation = max(v.generation, found[i].generation)
	}
	a, b := found[0], found[1]
	if a.generation == b.generation {
		if lost := missing(a.indexes, b.indexes); lost > 0 {
			s.log.Error("values of the table are lost: neither of its two files has them", "values", lost, "files", v.path(0)+", "+v.path(1))
		}
	} else if newer := newest(a, b); newer.damaged {
		s.log.Error("values of the table may be lost: the newer one of its files is damaged", "file", newer.path)
	}
	if s.view {
		return v, nil
	}
	v.stale = true // written again below, so both files are whole and alike
	if !a.damaged && !b.damaged && a.end == b.end && a.generation == b.generation && len(a.indexes) == len(b.indexes) && a.end > 0 {
		v.stale, v.offset, v.frames = false, a.end, len(a.indexes)
		return v, v.open()
	}
	return v, v.rewrite(into)
}

func newest(a, b *valuesFile) *valuesFile {
	if b.generation > a.generation {
		return b
	}
	return a
}

// missing counts the frames that are in neither file.
func missing(a, b map[int]bool) (lost int) {
	last := -1
	for i := range a {
		last = max(last, i)
	}
	for i := range b {
		last = max(last, i)
	}
	for i := range last {
		if !a[i] && !b[i] {
			lost++
		}
	}
	return lost
}

// valuesFile is what one of the two files holds.
type valuesFile struct {
	path       string
	generation store.Pos
	indexes    map[int]bool
	end        int64 // where its last frame ends
	damaged    bool  // something in it, or after it, is no frame
}

// read reads one of the files. Newer revisions replace older ones in into.
func (v *values) read(i int, into map[string]entry) (*valuesFile, error) {
	found := &valuesFile{path: v.path(i), indexes: map[int]bool{}}
	f, err := v.fs.Open(v.path(i), false)
	if isMissing(err) {
		return found, nil
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // it was only read
	header, err := readHeader(f, v.path(i))
	if err != nil {
		return nil, err
	}
	size, err := f.Size()
	if err != nil {
		return nil, err
	}
	if header != nil {
		found.generation = header.base
	}
	found.damaged = header == nil
	w := &window{f: f}
	found.end = dataStart
	for at := found.end; ; {
		offset, h, ok := w.find(at, size, valuesSeed, 1, ^store.Pos(0))
		if !ok {
			break
		}
		record, whole := w.record(offset, &h, valuesSeed)
		if !whole {
			at = offset + 1
			continue
		}
		found.damaged = found.damaged || offset != found.end
		found.end = offset + h.size()
		at = found.end
		found.indexes[int(h.confirmed)] = true
		take(into, record)
	}
	found.damaged = found.damaged || found.end < size
	return found, nil
}

func take(into map[string]entry, r *store.Record) {
	if uint64(r.Pos) <= into[r.Key].rev {
		return
	}
	e := entry{rev: uint64(r.Pos)}
	if r.Kind == kindValue {
		e.data = append([]byte{}, r.Data...)
	}
	into[r.Key] = e
}

func (v *values) open() error {
	for i := range v.copies {
		f, err := v.fs.Open(v.path(i), false)
		if err != nil {
			return err
		}
		v.copies[i] = f
	}
	return nil
}

// put appends an entry to both files. A crash in it leaves the entry in none, one or both
// of them, and the next start makes them alike.
func (v *values) put(key string, e *entry, all map[string]entry) error {
	if v.stale || v.frames > 2*len(all)+1024 {
		if err := v.rewrite(all); err != nil {
			return fmt.Errorf("write the table again: %w", err)
		}
	}
	b := entryFrame(key, e, valuesSeed, v.frames)
	for i, f := range v.copies {
		_, err := f.WriteAt(b, v.offset)
		if err == nil {
			err = f.Sync()
		}
		if err != nil {
			// The file may hold the entry or a part of it.
			v.stale = true
			return fmt.Errorf("%w: write %s: %w", store.ErrUnknown, v.path(i), err)
		}
	}
	v.offset += int64(len(b))
	v.frames++
	return nil
}

// rewrite makes both files from the entries, one after the other, so that one of them is
// whole at any time. A crash in it leaves two generations, of which the next start takes
// everything, by revision.
func (v *values) rewrite(all map[string]entry) error {
	h := segmentHeader{base: v.generation + 1, made: time.Now(), writer: v.writer}
	b := h.encode()
	frames := 0
	for key, e := range all {
		if !e.lazy {
			b = append(b, entryFrame(key, &e, valuesSeed, frames)...)
			frames++
		}
	}
	if err := v.close(); err != nil {
		v.log.Warn("closing the table's files failed", "error", err)
	}
	v.stale = true
	for i := range v.copies {
		if err := v.replace(v.path(i), b); err != nil {
			return err
		}
	}
	v.generation++
	v.offset, v.frames = int64(len(b)), frames
	if err := v.open(); err != nil {
		return err
	}
	v.stale = false
	return nil
}

// replace makes a file of these bytes. A crash leaves the old file or the new one.
func (v *values) replace(path string, b []byte) error {
	next := path + ".new"
	f, err := v.fs.Open(next, true)
	if err != nil {
		return err
	}
	err = f.Truncate(0)
	if err == nil {
		_, err = f.WriteAt(b, 0)
	}
	if err == nil {
		err = f.Sync()
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return errors.Join(err, v.fs.Remove(next))
	}
	if err := v.fs.Rename(next, path); err != nil {
		return err
	}
	return v.fs.SyncDir(v.dir)
}

func (v *values) close() (failed error) {
	for i, f := range v.copies {
		if f != nil {
			failed = errors.Join(failed, f.Close())
		}
		v.copies[i] = nil
	}
	return failed
}
