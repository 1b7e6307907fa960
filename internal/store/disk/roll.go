package disk

import (
	"errors"
	"fmt"
	"slices"

	"github.com/auditrelay/auditrelay/internal/store"
)

// room sees to it that the newest segment takes so many bytes more. The turn is held.
func (l *Log) room(need int64) error {
	if err := l.err(); err != nil {
		return err
	}
	if !l.poisoned && l.offset+need <= l.size {
		if l.opts.Allocate || l.opts.MaxBytes == 0 || l.used()+need <= l.opts.MaxBytes {
			return nil
		}
		return l.full(need)
	}
	size := max(l.segmentSize(), dataStart+need)
	taken := size
	if !l.opts.Allocate {
		taken = dataStart + need
	}
	if l.opts.MaxBytes > 0 && l.used()+taken > l.opts.MaxBytes {
		return l.full(taken)
	}
	return l.roll(l.end+1, size)
}

func (l *Log) used() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.bytes()
}

func (l *Log) full(need int64) error {
	return fmt.Errorf("%w in the budget of the log %s: it takes %d of %d bytes, and %d more are needed",
		store.ErrFull, l.name, l.used(), l.opts.MaxBytes, need)
}

// roll begins a new segment with the position base. The turn is held.
//
// A crash in it leaves a file without a header, or a segment without records. A start
// takes the first for nothing, and goes on in the second.
func (l *Log) roll(base store.Pos, size int64) error {
	l.tick()
	h := l.store.newHeader(l.name)
	h.Log, h.Secret, h.Base, h.Made, h.Doubtful = l.id, l.secret, base, l.newest.UnixNano(), l.doubtful
	older := slices.Clone(l.segments) // changes only in a turn
	if n := len(older); n > 0 && older[n-1].base == base {
		older = older[:n-1] // the newest holds no record that counts, and is replaced
	} else if n > 0 {
		older[n-1].end = l.offset
	}
	if n := len(older); n > 0 {
		h.Before, h.BeforeEnd, h.Doubtful = older[n-1].base, older[n-1].end, older[n-1].doubtful
	}
	f, err := l.make(&h, size)
	if err != nil {
		return err
	}
	l.files++
	s := segment{base: base, made: l.newest, size: dataStart, seed: seedOf(l.secret, l.id, base), file: l.files}
	if l.opts.Allocate {
		s.size = size
	}
	if l.f != nil {
		// What the old file holds is durable, or was refused.
		if err := l.f.Close(); err != nil {
			l.log.Warn("closing a segment failed", "log", l.name, "error", err)
		}
	}
	l.f, l.offset, l.size, l.poisoned = f, dataStart, size, false
	l.mu.Lock()
	l.segments, l.reached = append(older, s), dataStart
	l.mu.Unlock()
	if err := l.tell(l.first, base); err != nil { // the next append tells it
		l.log.Warn("the table was not told of a new segment", "log", l.name, "error", err)
	}
	return nil
}

// make makes the file of a segment, and its name, durable.
func (l *Log) make(h *segmentHeader, size int64) (file, error) {
	if err := l.store.fs.MakeDir(l.dir); err != nil {
		return nil, l.notMade(err)
	}
	path := l.path(h.Base)
	// A file of this name has no record that counts: it is of a roll that failed, or was
	// poisoned by its first write.
	if err := l.store.fs.Remove(path); err != nil && !isMissing(err) {
		return nil, fmt.Errorf("make a segment: %w", err)
	}
	f, err := l.store.fs.Open(path, toMake)
	if err != nil {
		return nil, l.notMade(err)
	}
	_, err = f.WriteAt(h.encode(), 0)
	if err == nil && l.opts.Allocate {
		err = f.Allocate(size)
	}
	if err == nil {
		err = f.Sync()
	}
	if err == nil {
		err = l.store.fs.SyncDir(l.dir)
	}
	if err != nil {
		return nil, errors.Join(l.notMade(err), f.Close(), l.unmake(path))
	}
	return f, nil
}

// unmake removes the file of a segment that could not be made. A power cut must not bring it back:
// it would hide what the segment before has taken meanwhile. So unless the removal is durable, the next
// record begins a new segment.
func (l *Log) unmake(path string) error {
	err := l.store.fs.Remove(path)
	if err == nil {
		err = l.store.fs.SyncDir(l.dir)
	}
	l.poisoned = l.poisoned || err != nil
	return err
}

func (l *Log) notMade(err error) error {
	if l.store.isFull(err) {
		return fmt.Errorf("%w on the disk for a segment of the log %s: %w", store.ErrFull, l.name, err)
	}
	return fmt.Errorf("make a segment of the log %s: %w", l.name, err)
}
