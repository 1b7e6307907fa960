package disk

import (
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"github.com/auditrelay/auditrelay/internal/store"
)

// values are the durable entries of the table, in two files. Each put appends to both, so
// that damage to one of them costs nothing: what one cannot give, the other can. Each frame
// carries its index in the file and the file's generation, and a mark says how many frames
// there were, as the end marks of all logs do: so a frame that neither file can give is
// noticed, at their end as well.
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
	generation uint64
	// revision is what was durable at last: the generation, and in the lower half the number
	// of frames.
	revision atomic.Uint64
	mark     *slots // of the revision
	// incomplete means that a value was lost, perhaps the only one of its key.
	incomplete bool
}

var valuesSeed = sum(0, []byte("durable values"))

// epoch is the time of frames that need none.
var epoch = time.Unix(0, 0)

var valuesFiles = [2]string{"values.a", "values.b"}

// valuesMarkFile is the file of the mark.
const valuesMarkFile = "values.mark"

func (v *values) path(i int) string { return filepath.Join(v.dir, valuesFiles[i]) }

func openValues(s *Store, into map[string]entry) (v *values, err error) {
	v = &values{fs: s.fs, dir: s.dir, writer: s.writer, log: s.log}
	// The marks are read first: a view may be opened while another process puts values.
	noted, err := v.noted(s)
	if err != nil {
		return nil, err
	}
	var found [2]*valuesFile
	for i := range found {
		if found[i], err = v.read(i); err != nil {
			return nil, err
		}
		v.generation = max(v.generation, found[i].generation)
	}
	a, b := found[0], found[1]
	lost := v.merge(slices.Concat(a.frames, b.frames), noted, into)
	if s.view {
		return v, nil
	}
	if !lost && a.whole && b.whole && len(a.frames) == len(b.frames) && a.generation == b.generation {
		v.offset, v.frames = a.end, len(a.frames)
		v.revision.Store(v.durable())
		return v, v.open()
	}
	if err := v.rewrite(into); err != nil {
		// Both files stay as they are, and the next put tries it again.
		s.log.Warn("making the two files of the table's values alike failed", "folder", v.dir, "error", err)
	}
	return v, nil
}

// noted opens the mark, and returns the newest revision that it or the end mark of a log
// knows of. So older copies of all files of the table are noticed as well.
func (v *values) noted(s *Store) (newest uint64, err error) {
	var b []byte
	if v.mark, b, err = openSlots(s, filepath.Join(v.dir, valuesMarkFile), "durable values"); err != nil {
		return 0, err
	}
	if len(b) == revisionLength {
		newest = binary.LittleEndian.Uint64(b)
	}
	names, err := v.fs.Names(v.dir)
	if err != nil {
		return 0, err
	}
	for _, name := range names {
		f, err := v.fs.Open(filepath.Join(v.dir, name, endFile), false)
		if err != nil {
			continue // it is no log, or its recovery says what is wrong
		}
		mark := &slots{purpose: sum(0, []byte(endPurpose(name))), f: f}
		mark.read()
		if m := parseMark(mark.value); m != nil {
			newest = max(newest, m.table)
		}
		_ = f.Close() // it was only read
	}
	return newest, nil
}

// durable is the revision that the files have.
func (v *values) durable() uint64 { return v.generation<<32 | uint64(v.frames) }

// merge takes the frames of both files. It reports whether one is missing, and then calls
// each value doubtful that may have been newer there.
func (v *values) merge(frames []valueFrame, noted uint64, into map[string]entry) (lost bool) {
	newest := map[string]valueFrame{}
	for _, f := range frames {
		if known, ok := newest[f.key]; !ok || f.after(&known) {
			newest[f.key] = f
		}
	}
	from, lost := v.firstTrusted(frames, noted)
	if _, told := newest[""]; told || lost { // only rewrite makes a frame without a key
		v.incomplete = true
	}
	delete(newest, "")
	doubtful := 0
	for key, f := range newest {
		switch old := f.generation != v.generation; {
		case old && !v.incomplete:
			continue // of a put that failed: each generation begins with all values
		case old, lost && f.index < from:
			f.doubtful = true
			doubtful++
		}
		into[key] = f.entry
	}
	if lost {
		v.log.Error("values of the table are lost: neither of its two files has them; others may be older than they were",
			"files", v.path(0)+", "+v.path(1), "possibly_older", doubtful)
	}
	return lost
}

// firstTrusted returns the index from which on the frames of the newest generation are all
// there, and whether one before it is missing. A frame that is missing may have been a newer
// one of any key before it.
func (v *values) firstTrusted(frames []valueFrame, noted uint64) (from int, lost bool) {
	count, present := 0, map[int]bool{}
	for _, f := range frames {
		if f.generation == v.generation {
			present[f.index] = true
			count = max(count, f.index+1)
		}
	}
	generation, durable := noted>>32, int(uint32(noted))
	if generation > v.generation { // older files were put back, or nothing was written yet
		v.generation = generation
		return 0, durable > 0
	}
	if generation == v.generation {
		count = max(count, durable)
	}
	for i := range count {
		if !present[i] {
			from, lost = i+1, true
		}
	}
	return from, lost
}

// valueFrame is an entry as it stands in a file.
type valueFrame struct {
	entry
	key        string
	generation uint64
	index      int
}

// after reports whether f was written after o. The revision does not tell: after a loss,
// revisions are given out that a file which was put back has, too.
func (f *valueFrame) after(o *valueFrame) bool {
	return f.generation > o.generation || f.generation == o.generation && f.index > o.index
}

// valuesFile is what one of the two files holds.
type valuesFile struct {
	frames     []valueFrame
	generation uint64
	end        int64 // where its last frame ends
	whole      bool  // there is nothing else in it
}

// read reads one of the files.
func (v *values) read(i int) (*valuesFile, error) {
	found := &valuesFile{}
	f, err := v.fs.Open(v.path(i), false)
	if isMissing(err) {
		return found, nil
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // it was only read
	header, bad, err := readHeader(f, v.path(i))
	if err != nil {
		return nil, err
	}
	size, err := f.Size()
	if err != nil {
		return nil, err
	}
	found.whole = header != nil && bad < 0
	w := &window{f: f}
	found.end = dataStart
	for at := found.end; ; {
		offset, h, ok := w.find(at, size, valuesSeed, 0, ^store.Pos(0))
		if !ok {
			break
		}
		var record store.Record
		if !w.record(offset, &h, valuesSeed, &record) {
			at = offset + 1
			continue
		}
		found.whole = found.whole && offset == found.end
		found.end = offset + h.size()
		at = found.end
		found.frames = append(found.frames, frameOf(&record, &h))
		found.generation = max(found.generation, uint64(h.time))
	}
	found.whole = found.whole && found.end == size
	return found, nil
}

func frameOf(r *store.Record, h *head) valueFrame {
	f := valueFrame{key: r.Key, generation: uint64(h.time), index: int(h.confirmed)}
	f.rev, f.doubtful = uint64(r.Pos), r.Kind&kindDoubtful != 0
	if r.Kind&^kindDoubtful == kindValue {
		f.data = append([]byte{}, r.Data...)
	}
	return f
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
// of them, and the next start makes them alike. The mark follows them, so that it never
// says more than is durable.
func (v *values) put(key string, e *entry, all map[string]entry) error {
	if v.stale || v.frames > 2*len(all)+1024 {
		if err := v.rewrite(all); err != nil {
			return fmt.Errorf("write the table again: %w", err)
		}
	}
	b := v.frame(key, e, v.offset, v.generation, v.frames)
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
	if err := v.note(); err != nil {
		v.stale = true
		return fmt.Errorf("%w: %w", store.ErrUnknown, err)
	}
	return nil
}

const revisionLength = 8

// note writes the mark, once the files are durable.
func (v *values) note() error {
	v.revision.Store(v.durable())
	return v.mark.put(binary.LittleEndian.AppendUint64(nil, v.durable()))
}

func (v *values) frame(key string, e *entry, offset int64, generation uint64, index int) []byte {
	return entryFrame(key, e, valuesSeed, offset, store.Pos(index), time.Unix(0, int64(generation)))
}

// rewrite makes both files from the entries, one after the other, so that one of them is
// whole at any time. A crash in it leaves two generations, of which the next start takes
// everything, by revision.
func (v *values) rewrite(all map[string]entry) error {
	h := segmentHeader{base: store.Pos(v.generation + 1), made: time.Now(), writer: v.writer}
	b := h.encode()
	frames := 0
	add := func(key string, e *entry) {
		b = append(b, v.frame(key, e, int64(len(b)), v.generation+1, frames)...)
		frames++
	}
	for key, e := range all {
		if !e.lazy {
			add(key, &e)
		}
	}
	if v.incomplete {
		add("", &entry{doubtful: true})
	}
	if err := v.closeCopies(); err != nil {
		v.log.Warn("closing the table's files failed", "error", err)
	}
	v.stale = true
	for i := range v.copies {
		if err := replaceFile(v.fs, v.path(i), b); err != nil {
			return err
		}
	}
	v.generation++
	v.offset, v.frames = int64(len(b)), frames
	// A crash before this line leaves a mark of the generation before, which is no more than
	// there is.
	if err := errors.Join(v.note(), v.open()); err != nil {
		return err
	}
	v.stale = false
	return nil
}

// check makes the files again if one of them was removed, or if the disk does not give what
// was written.
func (v *values) check(all map[string]entry, fromDisk bool) error {
	for i, f := range v.copies {
		if v.stale {
			break
		}
		v.stale = !v.fs.Same(f, v.path(i))
		if fromDisk && !v.stale {
			f.Forget()
			found, err := v.read(i)
			v.stale = err != nil || !found.whole || len(found.frames) != v.frames
		}
		if v.stale {
			v.log.Warn("a file of the table was removed or damaged, and both are written again", "file", v.path(i))
		}
	}
	if v.stale {
		if err := v.rewrite(all); err != nil {
			return err
		}
	}
	return v.mark.check(fromDisk)
}

func (v *values) close() error { return errors.Join(v.closeCopies(), v.mark.close()) }

func (v *values) closeCopies() (failed error) {
	for i, f := range v.copies {
		if f != nil {
			failed = errors.Join(failed, f.Close())
		}
		v.copies[i] = nil
	}
	return failed
}
