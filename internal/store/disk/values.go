package disk

import (
	"encoding/binary"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"github.com/auditrelay/auditrelay/internal/store"
)

// values are the durable entries of the table. They are few, and written seldom: so each put
// writes all of them, to one file after the other, as the next generation of both. Damage to
// one of the files costs nothing: what one cannot give, the other can. A frame carries its
// generation and its index in it, a file's header says how many there are, and a mark names
// the newest generation, as the end marks of all logs do. So a frame that neither file can
// give is noticed, and so are older files.
type values struct {
	fs     filesystem
	dir    string
	writer string
	log    *slog.Logger
	stale  bool // the files are not what they have to be
	// generation is the newest that a file may have.
	generation uint64
	durable    atomic.Uint64 // the newest generation that both files have
	mark       *slots        // of that
	// incomplete means that a value was lost, perhaps the only one of its key.
	incomplete bool
}

var valuesSeed = seedFor("durable values")

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
	}
	whole := v.merge(found, noted, into)
	if s.view || whole && found[0].is(v.generation) && found[1].is(v.generation) {
		return v, nil
	}
	if err := v.rewrite(into); err != nil {
		// Both files stay as they are, and the next put tries it again.
		s.log.Warn("making the two files of the table's values alike failed", "folder", v.dir, "error", err)
	}
	return v, nil
}

// noted opens the mark, and returns the newest generation that it or the end mark of a log
// knows of. So older copies of all files of the table are noticed as well.
func (v *values) noted(s *Store) (newest uint64, err error) {
	if v.mark, err = openSlots(s, filepath.Join(v.dir, valuesMarkFile), "durable values"); err != nil {
		return 0, err
	}
	if b := v.mark.value(); len(b) == generationLength {
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
		mark := &slots{seed: seedFor(endPurpose(name)), f: f}
		mark.load()
		if m := parseMark(mark.value()); m != nil {
			newest = max(newest, m.table)
		}
		_ = f.Close() // it was only read
	}
	return newest, nil
}

// merge takes the values of the newest generation that the two files have whole. Where they
// have none, or only an older one than what is noted, it takes the newest that is left of each
// value, and reports false: a value of an earlier generation is doubtful then.
func (v *values) merge(found [2]*valuesFile, noted uint64, into map[string]entry) (whole bool) {
	frames := slices.Concat(found[0].frames, found[1].frames)
	v.generation = max(noted, found[0].generation, found[1].generation)
	newest := v.generation
	if generation, ok := complete(found, noted); ok {
		whole, newest = true, generation
		frames = slices.DeleteFunc(frames, func(f valueFrame) bool { return f.generation != generation })
	}
	v.durable.Store(max(noted, newest))
	last := map[string]valueFrame{}
	for _, f := range frames {
		if known, ok := last[f.key]; !ok || f.generation > known.generation {
			last[f.key] = f
		}
	}
	lost := !whole && (noted > 0 || found[0].length+found[1].length > 0)
	_, told := last[""] // only rewrite makes a frame without a key
	v.incomplete = told || lost
	delete(last, "")
	doubtful := 0
	for key, f := range last {
		if f.generation < newest {
			f.doubtful = true
			doubtful++
		}
		into[key] = f.entry
	}
	if lost {
		v.log.Error("values of the table are lost: neither of its two files has them; others may be older than they were",
			"files", v.path(0)+", "+v.path(1), "possibly_older", doubtful)
	}
	return whole
}

// complete returns the newest generation of which the two files have every value. An earlier
// one than what is noted does not count.
func complete(found [2]*valuesFile, noted uint64) (generation uint64, ok bool) {
	present := map[uint64]map[int]bool{}
	for _, f := range slices.Concat(found[0].frames, found[1].frames) {
		if present[f.generation] == nil {
			present[f.generation] = map[int]bool{}
		}
		present[f.generation][f.index] = true
	}
	for _, file := range found {
		g := file.generation
		if file.header && g >= max(noted, generation) && len(present[g]) == file.count {
			generation, ok = g, true
		}
	}
	return generation, ok
}

// valueFrame is an entry as it stands in a file.
type valueFrame struct {
	entry
	key        string
	generation uint64
	index      int
}

// valuesFile is what one of the two files holds.
type valuesFile struct {
	length int64
	header bool // a copy of it can be read
	// generation and count are what the header says. Without one, generation is the newest of
	// the frames.
	generation uint64
	count      int
	frames     []valueFrame
	intact     bool // every byte is as it was written
}

// is reports whether the file is what was written as a generation.
func (f *valuesFile) is(generation uint64) bool { return f.intact && f.generation == generation }

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
	f.Forget(0)
	header, bad, err := readHeader(f, v.path(i))
	if err != nil {
		return nil, err
	}
	if found.length, err = f.Size(); err != nil {
		return nil, err
	}
	end := found.readFrames(f)
	if found.header = header != nil; found.header {
		found.generation, found.count = uint64(header.base), int(header.before) //nolint:gosec // we wrote it
	}
	ours := !slices.ContainsFunc(found.frames, func(f valueFrame) bool { return f.generation != found.generation })
	found.intact = found.header && bad < 0 && ours && len(found.frames) == found.count && end == found.length
	return found, nil
}

// readFrames reads what can be read, and returns where the last frame ends.
func (f *valuesFile) readFrames(from file) (end int64) {
	w := &window{f: from}
	end = dataStart
	for at := end; ; {
		offset, h, ok := w.find(at, f.length, valuesSeed, 0, ^store.Pos(0))
		if !ok {
			return end
		}
		var record store.Record
		if !w.record(offset, &h, valuesSeed, &record) {
			at = offset + 1
			continue
		}
		end = offset + h.size()
		at = end
		f.frames = append(f.frames, frameOf(&record, &h))
		f.generation = max(f.generation, uint64(h.time))
	}
}

func frameOf(r *store.Record, h *head) valueFrame {
	f := valueFrame{key: r.Key, generation: uint64(h.time), index: int(h.confirmed)}
	f.rev, f.doubtful = uint64(r.Pos), r.Kind&kindDoubtful != 0
	if r.Kind&^kindDoubtful == kindValue {
		f.data = append([]byte{}, r.Data...)
	}
	return f
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
		return fmt.Errorf("%w: write the table: %w", store.ErrUnknown, err)
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
	return appendFrame(b, store.Draft{Kind: kind, Key: key, Data: e.data})
}

const generationLength = 8

// rewrite makes both files from the entries, one after the other, so that one of them is
// whole at any time. A generation that failed is never written again: one file may have it.
func (v *values) rewrite(all map[string]entry) error {
	v.stale = true
	v.generation++
	h := segmentHeader{base: store.Pos(v.generation), made: time.Now(), writer: v.writer}
	b := h.encode()
	add := func(key string, e *entry) {
		at := len(b)
		b = appendEntry(b, key, e)
		finish(b[at:], valuesSeed, int64(at), store.Pos(e.rev), h.before, time.Unix(0, int64(v.generation)))
		h.before++
	}
	for key, e := range all {
		if !e.lazy {
			add(key, &e)
		}
	}
	if v.incomplete {
		add("", &entry{doubtful: true})
	}
	copy(b, h.encode()) // how many there are is known now
	for i := range valuesFiles {
		if err := replaceFile(v.fs, v.path(i), b); err != nil {
			return err
		}
	}
	// A crash before this line leaves a mark of the generation before, which is no more than
	// there is.
	v.durable.Store(v.generation)
	if err := v.mark.put(binary.LittleEndian.AppendUint64(nil, v.generation)); err != nil {
		return err
	}
	v.stale = false
	return nil
}

// check makes the files again if one of them was removed, or if the disk does not give what
// was written.
func (v *values) check(all map[string]entry, fromDisk bool) error {
	for i := range valuesFiles {
		if v.stale = v.stale || !v.sound(i, fromDisk); v.stale {
			v.log.Warn("a file of the table was removed or damaged, and both are written again", "file", v.path(i))
			if err := v.rewrite(all); err != nil {
				return err
			}
		}
	}
	return v.mark.check(fromDisk)
}

// sound reports whether one of the files is there, and as it was written if that is asked for.
func (v *values) sound(i int, fromDisk bool) bool {
	if fromDisk {
		found, err := v.read(i)
		return err == nil && found.is(v.generation)
	}
	f, err := v.fs.Open(v.path(i), false)
	return err == nil && f.Close() == nil
}
