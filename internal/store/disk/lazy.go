package disk

import (
	"fmt"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/auditrelay/auditrelay/internal/store"
)

// lazyValues is the file of values that are written without a sync. Each key has two
// slots, written in turn, so that a torn write leaves the value before it. The two stand
// on different pages: a page that is lost costs the newer value at most, and an older one
// is what a lazy value may become anyway. A slot holds its key and is bound to its place, so
// that a slot copied over another one is a value of neither.
type lazyValues struct {
	fs     filesystem
	log    *slog.Logger
	writer string
	f      file
	path   string
	dirty  bool           // something was written since the last sync
	broken bool           // the file has to be replaced
	place  map[string]int // key to its pair of slots, which it keeps when it is removed
	pairs  int
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
	v := &lazyValues{fs: s.fs, log: s.log, writer: s.writer, path: filepath.Join(s.dir, lazyFile), place: map[string]int{}}
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
	for pair := range v.pairs {
		for i := range uint64(2) {
			if key, e, ok := v.read(w, pair, i); ok && e.rev > into[key].rev {
				into[key], v.place[key] = e, pair
			}
		}
	}
	return v, nil
}

// begin writes the header of a new file, and refuses one of a later version.
func (v *lazyValues) begin(s *Store) error {
	header, err := s.header(v.f, v.path)
	if err != nil || header != nil || s.view {
		return err
	}
	h := segmentHeader{writer: s.writer}
	if _, err = v.f.WriteAt(h.encode(), 0); err == nil {
		err = v.f.Sync()
	}
	if err == nil {
		err = s.fs.SyncDir(s.dir)
	}
	if err != nil { // the next put makes another one
		v.fail("write", err)
	}
	return nil
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
func (v *lazyValues) put(key string, e entry, all map[string]entry) error {
	if v.broken {
		if err := v.replace(all); err != nil {
			return err
		}
	}
	pair, ok := v.place[key]
	if !ok {
		pair = v.pairs
		v.pairs++
		v.place[key] = pair
	}
	at := v.offset(pair, e.rev%2)
	v.dirty = true
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

// unsynced returns the file if it has to be synced, and nil otherwise.
func (v *lazyValues) unsynced() file {
	if !v.dirty || v.broken {
		return nil
	}
	v.dirty = false // what is written from now on is for the next sync
	return v.f
}

// synced notes how the sync of a file ended, and makes another one if that is necessary: after a
// failed sync no later one of the same file counts.
func (v *lazyValues) synced(f file, err error, all map[string]entry) error {
	if err != nil && f == v.f {
		v.fail("sync", err)
	}
	if v.broken {
		return v.replace(all)
	}
	return nil
}

// sync makes the newest values durable.
func (v *lazyValues) sync(all map[string]entry) error {
	f := v.unsynced()
	if f == nil {
		return v.synced(nil, nil, all)
	}
	return v.synced(f, f.Sync(), all)
}

func (v *lazyValues) fail(what string, cause any) {
	v.broken = true
	v.log.Warn("the file of the table's lazy values is replaced, since it failed", "file", v.path, "operation", what, "error", cause)
}

// check replaces the file if it was removed, or if the disk does not give what was written.
func (v *lazyValues) check(all map[string]entry, fromDisk bool) error {
	if !v.broken && !v.fs.Same(v.f, v.path) {
		v.fail("open", "it was removed or replaced")
	}
	if fromDisk && !v.broken {
		v.f.Forget()
		w := &window{f: v.f}
		for key, pair := range v.place {
			if found, e, ok := v.read(w, pair, all[key].rev%2); !ok || found != key || e.rev != all[key].rev {
				v.fail("read", "the value of "+key+" is damaged")
				break
			}
		}
	}
	if v.broken {
		return v.replace(all)
	}
	return nil
}

// replace makes another file with the newest values. A crash leaves the old file or the new
// one.
func (v *lazyValues) replace(all map[string]entry) error {
	place, n := map[string]int{}, 0
	for key, e := range all {
		if e.lazy && e.data != nil {
			place[key] = n
			n++
		}
	}
	h := segmentHeader{writer: v.writer}
	b := append(h.encode(), make([]byte, (n+lazyPage-1)/lazyPage*2*pageSize)...)
	for key, pair := range place {
		e := all[key]
		at := v.offset(pair, e.rev%2)
		copy(b[at:], entryFrame(key, &e, lazySeed, at, 0, epoch))
	}
	if err := replaceFile(v.fs, v.path, b); err != nil {
		return fmt.Errorf("replace %s: %w", v.path, err)
	}
	f, err := v.fs.Open(v.path, false)
	if err != nil {
		return fmt.Errorf("replace %s: %w", v.path, err)
	}
	_ = v.f.Close() // nothing in it counts any more
	v.f, v.place, v.pairs, v.broken, v.dirty = f, place, n, false, false
	return nil
}
