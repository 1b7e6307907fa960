package disk

import (
	"encoding/binary"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/auditrelay/auditrelay/internal/store"
)

// values are the durable entries of the table. They are few, and written seldom: so each put
// writes all of them, to one file after the other, as the next generation of both. A file counts
// if it is as it was written, down to the last byte, and the newer one of two does. So damage to one
// of them costs nothing. The file of the lazy values has a mark of the newest generation, and the
// end marks of all logs name it. So older copies of both files are noticed.
type values struct {
	store *Store
	stale bool // the files are not what they have to be
	// generation is the newest that a file may have.
	generation uint64
	durable    atomic.Uint64 // the newest generation that both files have
	mark       *slots        // of that, under markKey
	// incomplete means that a value was lost, perhaps the only one of its key.
	incomplete bool
}

var valuesSeed = seedFor("durable values")

// epoch is the time of frames that need none.
var epoch = time.Unix(0, 0)

var valuesFiles = [2]string{"values.a", "values.b"}

func (v *values) path(i int) string { return filepath.Join(v.store.cfg.Dir, valuesFiles[i]) }

func openValues(s *Store, mark *slots, into map[string]entry) (v *values, err error) {
	v = &values{store: s, mark: mark}
	// The marks are read first: a view may be opened while another process puts values.
	noted, err := v.noted()
	if err != nil {
		return nil, err
	}
	v.generation = noted
	var found [2]*valuesFile
	for i := range found {
		if found[i], err = v.read(i); err != nil {
			return nil, err
		}
		v.generation = max(v.generation, found[i].generation)
	}
	newest := newestIntact(found)
	some := v.generation > 0 || found[0].there || found[1].there
	if some && newest.generation < max(v.generation, 1) {
		v.salvage(found, into)
	} else {
		v.take(newest, into)
	}
	v.durable.Store(max(noted, newest.generation))
	if s.view || found[0].is(v.generation) && found[1].is(v.generation) {
		return v, nil
	}
	v.stale = true
	if err := v.rewrite(into); err != nil {
		// Both files stay as they are, and the next put tries it again.
		s.log.Warn("making the two files of the table's values alike failed", "folder", v.store.cfg.Dir, "error", err)
	}
	return v, nil
}

// newestIntact is the file that counts, an empty one if there is none.
func newestIntact(found [2]*valuesFile) *valuesFile {
	newest := &valuesFile{}
	for _, f := range found {
		if f.intact && f.generation > newest.generation {
			newest = f
		}
	}
	return newest
}

// take takes the values of a file.
func (v *values) take(f *valuesFile, into map[string]entry) {
	for key, e := range f.entries {
		if key == "" { // only rewrite makes an entry without a key
			v.incomplete = true
			continue
		}
		into[key] = e
	}
}

// salvage takes the newest of each value that can be read, where no file counts: each is doubtful, and
// so are keys without any.
func (v *values) salvage(found [2]*valuesFile, into map[string]entry) {
	left := map[string]entry{}
	for _, f := range found {
		for key, e := range f.entries {
			if known, ok := left[key]; !ok || e.rev > known.rev {
				e.doubtful = true
				left[key] = e
			}
		}
	}
	v.take(&valuesFile{entries: left}, into)
	v.incomplete = true
	v.generation += lostMargin // which nobody has named yet: a header may be lost as well
	v.store.log.Error("values of the table are lost: neither of its two files has them; others may be older than they were",
		"files", v.path(0)+", "+v.path(1), "possibly_older", len(left))
}

// noted is the newest generation that the mark or the end mark of a log knows of.
func (v *values) noted() (newest uint64, err error) {
	if b := v.mark.value(); len(b) == generationLength {
		newest = binary.LittleEndian.Uint64(b)
	}
	names, err := v.store.fs.Names(v.store.cfg.Dir)
	if err != nil {
		return 0, err
	}
	for _, name := range names {
		log, isMark := strings.CutSuffix(name, endSuffix)
		if !isMark {
			continue
		}
		if m := v.store.endMark(log); m != nil { // otherwise the log's recovery says what is wrong
			newest = max(newest, m.Table)
		}
	}
	return newest, nil
}

// valuesFile is what one of the two files holds.
type valuesFile struct {
	there      bool
	length     int64
	generation uint64 // 0 if the header cannot be read
	entries    map[string]entry
	intact     bool // every byte is as it was written
}

// is reports whether the file is what was written as a generation.
func (f *valuesFile) is(generation uint64) bool { return f.intact && f.generation == generation }

// read reads one of the files.
func (v *values) read(i int) (*valuesFile, error) {
	found := &valuesFile{entries: map[string]entry{}}
	f, err := v.store.fs.Open(v.path(i), toRead)
	if isPassing(err) {
		return nil, err
	}
	if found.there = !isMissing(err); err != nil { // a rotten inode is damage
		return found, nil
	}
	defer func() { _ = f.Close() }() // it was only read
	f.Forget(0)
	header, bad, err := readHeader(f, v.path(i))
	if err != nil {
		return nil, err
	}
	if found.length, err = f.Size(); err != nil {
		return nil, err
	}
	if header != nil {
		found.generation = uint64(header.Base)
	}
	found.intact = found.readEntries(f) && header != nil && bad < 0 && header.BeforeEnd == found.length
	return found, nil
}

// readEntries reads what can be read, and reports whether that is the whole file.
func (f *valuesFile) readEntries(from file) (whole bool) {
	w, whole := &window{f: from}, true
	for at := int64(dataStart); ; {
		offset, h, ok := w.find(at, f.length, valuesSeed, 0, ^store.Pos(0))
		if !ok {
			return whole && at == f.length
		}
		var r store.Record
		if !w.record(offset, &h, valuesSeed, &r) {
			whole, at = false, offset+1
			continue
		}
		whole = whole && offset == at && uint64(h.time) == f.generation
		e := entry{rev: uint64(r.Pos), doubtful: r.Kind&kindDoubtful != 0}
		if r.Kind&^kindDoubtful == kindValue {
			e.data = append([]byte{}, r.Data...)
		}
		f.entries[r.Key] = e
		at = offset + h.size()
	}
}

// put writes all entries, with another one for a key. A crash in it leaves two generations: the
// next start takes the newer one if a file has it whole, and makes both files alike.
func (v *values) put(key string, e *entry, all map[string]entry) error {
	next := make(map[string]entry, len(all)+1)
	for known, old := range all {
		next[known] = old
	}
	next[key] = *e
	if err := v.rewrite(next); err != nil {
		return fmt.Errorf("write the table: %w", err)
	}
	return nil
}

// appendEntry appends an entry in the form of a record: [finish] has to be given its revision.
func appendEntry(b []byte, key string, e *entry) []byte {
	kind := uint8(kindValue)
	if e.data == nil {
		kind = kindTombstone
	}
	if e.doubtful {
		kind |= kindDoubtful
	}
	return appendFrame(b, store.Draft{Kind: kind, Key: key, Data: e.data}, 0)
}

const generationLength = 8

// rewrite makes both files from the entries, one after the other, so that one of them is
// whole at any time. A generation that failed is never written again: one file may have it. The
// error wraps [store.ErrUnknown] if it is so; else the files are as they were.
func (v *values) rewrite(all map[string]entry) error {
	b := v.encode(all, v.generation+1)
	if err := v.stage(b); err != nil {
		return err
	}
	v.stale = true
	v.generation++
	if err := v.exchange(); err != nil {
		return fmt.Errorf("%w: %w", store.ErrUnknown, err)
	}
	v.stale = false
	return nil
}

// encode is a generation of the files.
func (v *values) encode(all map[string]entry, generation uint64) []byte {
	h := v.store.newHeader("")
	h.Base, h.Made = store.Pos(generation), time.Now().UnixNano()
	b := h.encode()
	add := func(key string, e *entry) {
		at := len(b)
		b = appendEntry(b, key, e)
		finish(b[at:], valuesSeed, int64(at), store.Pos(e.rev), 0, time.Unix(0, int64(generation)))
	}
	for key, e := range all {
		if !e.lazy {
			add(key, &e)
		}
	}
	if v.incomplete {
		add("", &entry{doubtful: true})
	}
	h.BeforeEnd = int64(len(b))
	copy(b, h.encode()) // where they end is known now
	return b
}

// stage writes what is to replace both files, before it replaces one: so a disk without room is no doubt
// about a value. A crash in it leaves files that nobody reads and the next one replaces.
func (v *values) stage(b []byte) error {
	for i := range valuesFiles {
		if err := stageFile(v.store.fs, v.path(i), b); err != nil {
			for before := range i {
				err = errors.Join(err, v.store.fs.Remove(staged(v.path(before))))
			}
			return err
		}
	}
	return nil
}

// exchange replaces both files by what was staged, and marks it.
func (v *values) exchange() error {
	for i := range valuesFiles {
		if err := takePlace(v.store.fs, v.path(i)); err != nil {
			return err
		}
	}
	// A crash before this line leaves a mark of the generation before, which is no more than
	// there is.
	v.durable.Store(v.generation)
	_, err := v.mark.write(markKey, binary.LittleEndian.AppendUint64(nil, v.generation))
	return err
}

// check makes the files again if one of them was removed, or if the disk does not give what
// was written. It is tried at each look, and told of once.
func (v *values) check(all map[string]entry, fromDisk bool) error {
	known := v.stale
	for i := range valuesFiles {
		if v.stale || v.sound(i, fromDisk) {
			continue
		}
		v.store.log.Warn("a file of the table was removed or damaged, and both are written again", "file", v.path(i))
		v.stale = true
	}
	if !v.stale {
		return nil
	}
	err := v.rewrite(all)
	if err != nil && !known {
		v.store.log.Warn("the files of the table cannot be written again; it is tried each second", "error", err)
	}
	if err == nil && known {
		v.store.log.Info("the files of the table are whole again")
	}
	return err
}

// sound reports whether one of the files is there, and as it was written if that is asked for, as far as
// anybody can tell.
func (v *values) sound(i int, fromDisk bool) bool {
	if fromDisk {
		found, err := v.read(i)
		return isPassing(err) || err == nil && found.is(v.generation)
	}
	f, err := v.store.fs.Open(v.path(i), toRead)
	return isPassing(err) || err == nil && f.Close() == nil
}
