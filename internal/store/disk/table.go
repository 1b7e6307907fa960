package disk

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/auditrelay/auditrelay/internal/store"
)

// Table is the table of a [Store]. Durable values stand in two files, each of which holds
// them all; lazy ones in a third.
type Table struct {
	turn turn // held by whoever writes
	// syncing is held by whoever syncs the lazy values.
	syncing turn

	durable *values // used by the holder of the turn
	lazy    *slots

	incomplete bool // a value of a key that is not known may have been lost; immutable

	mu      sync.Mutex
	entries map[string]entry // guarded by mu
	changed chan struct{}    // closed with each change; guarded by mu
	closed  bool             // guarded by mu

	gone
}

// entry is what is known of a key.
type entry struct {
	rev  uint64
	data []byte // nil for a tombstone
	lazy bool
	// doubtful means that a newer value may have been lost.
	doubtful bool
}

func (e *entry) value(key string) store.Value {
	return store.Value{Key: key, Rev: e.rev, Data: e.data, Doubtful: e.doubtful}
}

var _ store.Table = (*Table)(nil)

// lazyFile is the file of the lazy values.
const (
	lazyFile    = "lazy"
	lazyPurpose = "lazy values"
)

// maxValue bounds a durable value's key and data, in bytes.
const maxValue = 1 << 20

func openTable(s *Store) (*Table, error) {
	t := &Table{turn: newTurn(), syncing: newTurn(), entries: map[string]entry{}, changed: make(chan struct{})}
	var err error
	if t.lazy, err = openSlots(s, filepath.Join(s.cfg.Dir, lazyFile), lazyPurpose); err != nil {
		return nil, err
	}
	for key, v := range t.lazy.values {
		if key != markKey {
			t.entries[key] = entry{rev: v.number, data: v.data, lazy: true}
		}
	}
	if t.durable, err = openValues(s, t.lazy, t.entries); err != nil {
		return nil, err
	}
	t.incomplete = t.durable.incomplete
	return t, nil
}

// Get implements [store.Table].
func (t *Table) Get(_ context.Context, key string) (store.Value, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return store.Value{}, store.ErrClosed
	}
	e, known := t.entries[key]
	e.doubtful = e.doubtful || !known && t.incomplete
	return e.value(key), nil
}

// List implements [store.Table].
func (t *Table) List(_ context.Context, prefix string) ([]store.Value, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return nil, store.ErrClosed
	}
	var all []store.Value
	for key, e := range t.entries {
		if strings.HasPrefix(key, prefix) && e.data != nil {
			all = append(all, e.value(key))
		}
	}
	slices.SortFunc(all, func(a, b store.Value) int { return strings.Compare(a.Key, b.Key) })
	return all, nil
}

// Put implements [store.Table].
func (t *Table) Put(ctx context.Context, key string, data []byte, c store.If) (uint64, error) {
	return t.put(ctx, key, data, c, false)
}

// PutLazy implements [store.Table].
func (t *Table) PutLazy(ctx context.Context, key string, data []byte, c store.If) error {
	_, err := t.put(ctx, key, data, c, true)
	return err
}

func (t *Table) put(ctx context.Context, key string, data []byte, c store.If, lazy bool) (uint64, error) {
	limit := maxValue
	if lazy {
		limit = maxSlot
	}
	if key == "" || len(key) > store.MaxKey || len(key)+len(data) > limit {
		return 0, fmt.Errorf("%w: a value of %d bytes under a key of %d, where %d are taken", store.ErrTooLarge, len(data), len(key), limit)
	}
	e := &entry{lazy: lazy}
	if data != nil {
		e.data = append([]byte{}, data...)
	}
	if err := t.turn.during(ctx, func() error { return t.write(key, e, c) }); err != nil {
		return 0, err
	}
	return e.rev, nil
}

// write makes e the entry of a key if the condition holds. The turn is held.
func (t *Table) write(key string, e *entry, c store.If) error {
	old, err := t.judge(key, c, e.lazy)
	if err != nil {
		return err
	}
	if e.lazy {
		e.rev, err = t.lazy.write(key, e.data)
	} else {
		e.rev = old.rev + 1
		err = t.durable.put(key, e, t.entries) // entries change only in a turn
	}
	if t.lazy.store.isFull(err) && !errors.Is(err, store.ErrUnknown) {
		return fmt.Errorf("%w for the store's table: %w", store.ErrFull, err)
	}
	if err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.entries[key] = *e
	close(t.changed)
	t.changed = make(chan struct{})
	return nil
}

// judge returns the entry of a key if the condition holds.
func (t *Table) judge(key string, c store.If, lazy bool) (entry, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.err(); err != nil {
		return entry{}, err
	}
	if now := t.entries[c.Key].rev; c != (store.If{}) && now != c.Rev {
		return entry{}, fmt.Errorf("%w: the revision of %s is %d, not %d", store.ErrConflict, c.Key, now, c.Rev)
	}
	old, known := t.entries[key]
	if known && old.lazy != lazy {
		return entry{}, fmt.Errorf("the value %s is written lazily by some and durably by others", key)
	}
	return old, nil
}

// Sync implements [store.Table]. Nobody who puts a value waits for the disk meanwhile.
func (t *Table) Sync(ctx context.Context) error {
	if err := t.syncing.lock(ctx); err != nil {
		return err
	}
	defer t.syncing.unlock()
	return t.lazy.sync()
}

// watch looks whether the table's files are still in their folder, and whether the disk gives
// what was written, if that is asked for. Files that do not are made again from memory.
func (t *Table) watch(fromDisk bool) {
	if !t.turn.tryLock() {
		return // the next time
	}
	defer t.turn.unlock()
	err := errors.Join(t.lazy.check(fromDisk), t.durable.check(t.entries, fromDisk))
	if isMissing(err) {
		_ = t.lose(t.lazy.path)
	}
}

// Watch implements [store.Table].
func (t *Table) Watch(ctx context.Context, prefix string) iter.Seq2[store.Value, error] {
	return func(yield func(store.Value, error) bool) {
		seen := map[string]uint64{}
		for first := true; ; first = false {
			t.mu.Lock()
			changed, closed := t.changed, t.closed
			var fresh []store.Value
			for key, e := range t.entries {
				if strings.HasPrefix(key, prefix) && seen[key] != e.rev && (!first || e.data != nil) {
					fresh = append(fresh, e.value(key))
				}
				if strings.HasPrefix(key, prefix) {
					seen[key] = e.rev
				}
			}
			t.mu.Unlock()
			if closed {
				yield(store.Value{}, store.ErrClosed)
				return
			}
			for _, v := range fresh {
				if !yield(v, nil) {
					return
				}
			}
			select {
			case <-changed:
			case <-ctx.Done():
				yield(store.Value{}, ctx.Err())
				return
			}
		}
	}
}

func (t *Table) close() error {
	t.syncing.end()
	t.turn.end()
	t.mu.Lock()
	t.closed = true
	close(t.changed)
	t.mu.Unlock()
	if t.err() != nil { // nothing that is written now is found again
		return t.lazy.release()
	}
	return t.lazy.close()
}
