package disk

import (
	"fmt"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/auditrelay/auditrelay/internal/store"
)

// lazyValues is the file of values that are written without a sync. Each key has two
// slots, written in turn, so that a torn write leaves the value before it. The two stand
// on different pages: a page that is lost costs the newer value at most, and an older one
// is what a lazy value may become anyway. A slot holds its key and is bound to its place, so
// that a slot copied over another one is a value of neither.
type lazyValues struct {
	f     file
	path  string
	dirty atomic.Bool
	place map[string]int // key to its pair of slots
	free  []int          // pairs whose key was removed
	pairs int
}

const (
	lazyFile = "lazy"
	lazySlot = 512
	lazyPage = pageSize / lazySlot
	// maxLazy bounds a lazy value's key and data, in bytes.
	maxLazy = lazySlot - headSize - sumSize
	// The kinds of entries.
	kindValue     = 1
	kindTombstone = 2
	// kindDoubtful is added to the kind of an entry that may have been replaced by a lost one.
	kindDoubtful = 4
)

// lazySeed is no secret: no stranger's bytes stand in this file.
var lazySeed = sum(0, []byte("lazy values"))

func openLazy(s *Store, into map[string]entry) (*lazyValues, error) {
	v := &lazyValues{path: filepath.Join(s.dir, lazyFile), place: map[string]int{}}
	var err error
	if v.f, err = s.fs.Open(v.path, true); err != nil {
		return nil, err
	}
	if err := v.begin(s); err != nil {
		return nil, err
	}
	size, err := v.f.Size()
	if err != nil {
		return nil, err
	}
	w := &window{f: v.f}
	v.pairs = int((size - dataStart + 2*pageSize - 1) / (2 * pageSize) * lazyPage)
	used := make([]bool, v.pairs)
	for pair := range v.pairs {
		for i := range uint64(2) {
			if key, e, ok := v.read(w, pair, i); ok && e.rev > into[key].rev {
				into[key], v.place[key] = e, pair
			}
		}
	}
	for key, pair := range v.place {
		used[pair] = into[key].data != nil
		if into[key].data == nil {
			delete(v.place, key)
		}
	}
	for pair, taken := range used {
		if !taken {
			v.free = append(v.free, pair)
		}
	}
	return v, nil
}

// begin writes the header of a new file, and refuses one of a later version.
func (v *lazyValues) begin(s *Store) error {
	header, err := readHeader(v.f, v.path)
	if err != nil || header != nil || s.view {
		return err
	}
	h := segmentHeader{writer: s.writer}
	if _, err := v.f.WriteAt(h.encode(), 0); err != nil {
		return err
	}
	if err := v.f.Sync(); err != nil {
		return err
	}
	return s.fs.SyncDir(s.dir)
}

// offset is where a slot stands: eight pairs have a page for their first slots, and the
// next one for their second.
func (v *lazyValues) offset(pair int, slot uint64) int64 {
	page := 2*(pair/lazyPage) + int(slot)
	return dataStart + int64(page)*pageSize + int64(pair%lazyPage)*lazySlot
}

func (v *lazyValues) read(w *window, pair int, slot uint64) (key string, e entry, ok bool) {
	at := v.offset(pair, slot)
	h, ok := w.head(at, lazySeed)
	if !ok || h.size() > lazySlot {
		return "", entry{}, false
	}
	var record store.Record
	if !w.record(at, &h, lazySeed, &record) {
		return "", entry{}, false
	}
	e = entry{rev: uint64(record.Pos), lazy: true}
	if record.Kind == kindValue {
		e.data = append([]byte{}, record.Data...)
	}
	return record.Key, e, true
}

// put writes a value, in the slot of the value before the last.
//
// A kill before the write leaves the old value, and one after it the new value. After a
// power cut either is there.
func (v *lazyValues) put(key string, e entry) error {
	pair, ok := v.place[key]
	if !ok {
		if n := len(v.free); n > 0 {
			pair, v.free = v.free[n-1], v.free[:n-1]
		} else {
			pair = v.pairs
			v.pairs++
		}
		v.place[key] = pair
	}
	at := v.offset(pair, e.rev%2)
	v.dirty.Store(true)
	if _, err := v.f.WriteAt(entryFrame(key, &e, lazySeed, at, 0, epoch), at); err != nil {
		return fmt.Errorf("write %s: %w", v.path, err)
	}
	return nil
}

// entryFrame is an entry in the form of a record, whose position is the revision.
func entryFrame(key string, e *entry, seed uint64, offset int64, index store.Pos, at time.Time) []byte {
	kind := uint8(kindValue)
	if e.data == nil {
		kind = kindTombstone
	}
	if e.doubtful {
		kind |= kindDoubtful
	}
	b := appendFrame(nil, store.Draft{Kind: kind, Key: key, Data: e.data})
	finish(b, seed, offset, store.Pos(e.rev), index, at)
	return b
}

func (v *lazyValues) sync() error {
	if !v.dirty.Swap(false) {
		return nil
	}
	if err := v.f.Sync(); err != nil {
		return fmt.Errorf("sync %s: %w", v.path, err)
	}
	return nil
}
