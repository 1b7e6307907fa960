package disk

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"sync"

	"github.com/auditrelay/auditrelay/internal/store"
)

// slots is a file of small values that are written often, and without a sync: the lazy values
// of the table, or a single mark. Each key has two slots, written in turn, so that a torn write
// leaves the value before it. The two stand on different pages: a page that is lost costs the
// newer value at most. A slot holds its key, and its checksum covers its place and the purpose
// of the file, so that what is copied over another slot or another file is no value there.
//
// A file that cannot be made, written or synced any more, or that was removed, is replaced.
type slots struct {
	store *Store
	path  string
	seed  uint64 // of the purpose
	// damaged is set if a slot that was written could not be read when the file was opened,
	// so that a value may be older than the newest one.
	damaged bool

	mu      sync.Mutex
	f       file            // nil if there is none yet; guarded by mu
	dirty   bool            // something was written since the last sync; guarded by mu
	broken  bool            // the file has to be replaced; guarded by mu
	values  map[string]slot // the newest of each key; guarded by mu
	pairs   int             // how many are in use; guarded by mu
	scratch []byte          // guarded by mu
}

// slot is the newest value of a key.
type slot struct {
	pair   int    // where it stands; a removed value keeps its place
	number uint64 // one more with each write
	data   []byte // nil for a tombstone
}

const (
	slotSize     = 512
	slotsPerPage = pageSize / slotSize
	// maxSlot bounds a key and its value, in bytes.
	maxSlot = slotSize - headSize - sumSize
	// markKey is the only key in the file of a mark. Among the lazy values it has the mark of the
	// durable ones.
	markKey = ""
	// The kinds of entries.
	kindValue     = 1
	kindTombstone = 2
	// kindDoubtful is added to the kind of an entry that may have been replaced by a lost one.
	kindDoubtful = 4
)

func seedFor(purpose string) uint64 { return sum(0, []byte(purpose)) }

// openSlots opens the file. If there is none, the first write makes it.
func openSlots(s *Store, path, purpose string) (*slots, error) {
	v := &slots{store: s, path: path, seed: seedFor(purpose), values: map[string]slot{}}
	var err error
	if v.f, err = s.fs.Open(path, toWrite); isPassing(err) {
		return nil, err
	}
	if err != nil {
		v.f, v.broken, v.damaged = nil, true, !isMissing(err)
		if v.damaged {
			s.log.Warn("a file of the store cannot be opened; what it held is lost, and it is written again", "file", path, "error", err)
		}
		return v, nil
	}
	header, err := s.header(v.f, path)
	if err != nil {
		return nil, errors.Join(err, v.f.Close())
	}
	load := v.load
	if s.view {
		load = v.loadShared
	}
	v.broken, v.damaged = header == nil && !s.view, !load()
	if v.damaged {
		s.log.Warn("a slot of a file cannot be read; the one with the value before counts, and the file is written again", "file", path)
	}
	return v, nil
}

// at is the offset of a slot: eight pairs have a page for their first slots, and the next one
// for their second.
func (s *slots) at(pair int, number uint64) int64 {
	page := 2*(pair/slotsPerPage) + int(number%2)
	return dataStart + int64(page)*pageSize + int64(pair%slotsPerPage)*slotSize
}

// load takes the newest values of the file. It reports whether each pair of slots is as it was
// written.
func (s *slots) load() (sound bool) {
	size, err := s.f.Size()
	if err != nil {
		return false
	}
	s.values, s.pairs, sound = map[string]slot{}, 0, true
	w := &window{f: s.f}
	for pair := 0; s.at(pair, 0) < size; pair++ {
		key, v, whole := s.read(w, pair)
		if sound = sound && whole; v.number > 0 || !whole {
			s.pairs = pair + 1
		}
		if v.number > s.values[key].number {
			s.values[key] = v
		}
	}
	return sound
}

// loadShared is load for a file that another process perhaps writes meanwhile.
func (s *slots) loadShared() (sound bool) {
	for tries := 0; !sound && tries < 10; tries++ {
		sound = s.load()
	}
	return sound
}

// read gives the newest value of a pair of slots. whole says that they are as they were written:
// the number of one is one more than that of the other, which is blank before the second write.
func (s *slots) read(w *window, pair int) (key string, v slot, whole bool) {
	older, blank := uint64(0), true
	for i := range uint64(2) {
		var r store.Record
		at := s.at(pair, i)
		h, ok := w.head(at, s.seed)
		if !ok || h.size() > slotSize || !w.record(at, &h, s.seed, &r) {
			blank = blank && len(bytes.Trim(w.bytes(at, slotSize), "\x00")) == 0
			continue
		}
		number := uint64(r.Pos)
		if number < v.number {
			older = number
			continue
		}
		older, key, v = v.number, r.Key, slot{pair: pair, number: number}
		if r.Kind == kindValue {
			v.data = append([]byte{}, r.Data...)
		}
	}
	return key, v, v.number == 0 && blank || v.number == older+1 && (older > 0 || blank)
}

// frame is a slot in the form of a record, whose position is the number.
func (s *slots) frame(key string, v *slot, number uint64) []byte {
	s.scratch = appendEntry(s.scratch[:0], key, &entry{data: v.data})
	finish(s.scratch, s.seed, s.at(v.pair, number), store.Pos(number), 0, epoch)
	return s.scratch
}

// write replaces the value of a key, but does not sync it. A kill after it returned leaves the
// new value, and a kill before leaves the old one or the new one. After a power cut either is
// there.
func (s *slots) write(key string, value []byte) (number uint64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	old, known := s.values[key]
	next := slot{pair: old.pair, number: old.number + 1, data: bytes.Clone(value)}
	if !known {
		next.pair = s.pairs
	}
	s.values[key] = next
	if !s.broken {
		if _, err = s.f.WriteAt(s.frame(key, &next, next.number), s.at(next.pair, next.number)); err != nil && !isFull(err) {
			s.fail("write", err)
		}
	}
	if s.broken {
		err = s.replace()
	} else if err == nil {
		s.dirty, s.pairs = true, max(s.pairs, next.pair+1)
	}
	if err != nil {
		if s.values[key] = old; !known {
			delete(s.values, key)
		}
		return 0, fmt.Errorf("write %s: %w", s.path, err)
	}
	return next.number, nil
}

// fail notes that the file is of no use any more. mu is held.
func (s *slots) fail(what string, cause any) {
	s.broken = true
	s.store.log.Warn("a file of the store is replaced, since it failed", "file", s.path, "operation", what, "error", cause)
}

// replace makes another file with the newest value of each key in both slots. A crash leaves the
// old file or the new one. mu is held.
func (s *slots) replace() error {
	h := s.store.newHeader("")
	b := append(h.encode(), make([]byte, (len(s.values)+slotsPerPage-1)/slotsPerPage*2*pageSize)...)
	placed := make(map[string]slot, len(s.values))
	for key, v := range s.values {
		v.pair = len(placed)
		placed[key] = v
		for number := max(1, v.number-1); number <= v.number; number++ {
			copy(b[s.at(v.pair, number):], s.frame(key, &v, number))
		}
	}
	if err := replaceFile(s.store.fs, s.path, b); err != nil {
		return err
	}
	f, err := s.store.fs.Open(s.path, toWrite)
	if err != nil {
		return err
	}
	if s.f != nil {
		_ = s.f.Close() // nothing in it counts any more
	}
	s.f, s.values, s.pairs, s.broken, s.dirty = f, placed, len(placed), false, false
	return nil
}

// value is the newest value of a mark, or nil.
func (s *slots) value() []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return bytes.Clone(s.values[markKey].data)
}

// sync makes the newest values durable. It may run while another goroutine writes. After a
// failed sync no later one of the same file counts, so that it makes another file.
func (s *slots) sync() error {
	s.mu.Lock()
	f, due := s.f, s.dirty && !s.broken
	s.dirty = s.dirty && !due // what is written from now on is for the next sync
	s.mu.Unlock()
	var err error
	if due {
		err = f.Sync()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil && f == s.f && !s.broken {
		s.fail("sync", err)
	}
	return s.mend()
}

// mend replaces the file if that is necessary. mu is held.
func (s *slots) mend() error {
	if !s.broken || len(s.values) == 0 {
		return nil
	}
	if err := s.replace(); err != nil {
		return fmt.Errorf("replace %s: %w", s.path, err)
	}
	return nil
}

// check replaces the file if it was removed, or if the disk does not give what was written.
func (s *slots) check(fromDisk bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.values) > 0 && !s.broken && !s.store.fs.Same(s.f, s.path) {
		s.fail("open", "it was removed or replaced")
	}
	if fromDisk && !s.broken && !s.isWhole() {
		s.fail("read", "a part of it is damaged")
	}
	return s.mend()
}

// isWhole reports whether the disk gives what was written. mu is held.
func (s *slots) isWhole() bool {
	s.f.Forget(0)
	header, bad, err := readHeader(s.f, s.path)
	read := &slots{seed: s.seed, f: s.f}
	same := func(a, b slot) bool { return a.pair == b.pair && a.number == b.number }
	return err == nil && header != nil && bad < 0 && read.load() && maps.EqualFunc(read.values, s.values, same)
}

// release closes the file, and leaves it as it is.
func (s *slots) release() error {
	if s.f == nil {
		return nil
	}
	return s.f.Close()
}

func (s *slots) close() error { return errors.Join(s.sync(), s.release()) }
