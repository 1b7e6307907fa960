package deadletters

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/auditrelay/auditrelay/internal/retry"
	"github.com/auditrelay/auditrelay/internal/store"
)

// index knows the letters that are live. It takes 32 bytes for each. It is made from the
// log alone, so that it also knows the letters of another relay on the same cluster.
type index struct {
	budget int64

	mu      sync.Mutex
	of      store.ID               // the log that was read; guarded by mu
	applied store.Pos              // up to here; guarded by mu
	goal    store.Pos              // its end when the reading began; guarded by mu
	grown   chan struct{}          // closed with the next record that is read; guarded by mu
	entries []entry                // ascending by id; guarded by mu
	removed int                    // entries that are no longer live; guarded by mu
	shares  map[shareKey]*share    // those with letters; guarded by mu
	bytes   int64                  // what the live letters take; guarded by mu
	foreign bool                   // the log has a record of a later version; guarded by mu
	moved   bool                   // what is beyond the budgets has to be told; guarded by mu
	beyond  func(map[string]int64) // nil for nobody; called with mu held
}

// entry is a letter.
type entry struct {
	id  store.Pos
	pos store.Pos // where it stands now; 0 for a letter that was removed
	*share
	size int32
}

type shareKey struct{ sink, source string }

// share is what the letters of a source take at a sink.
type share struct {
	shareKey
	letters uint64
	bytes   int64
}

func newIndex(budget int64) *index {
	return &index{budget: budget, shares: map[shareKey]*share{}, grown: make(chan struct{}), moved: true}
}

// frameBytes is what a record takes in the log in addition to its key and data, about.
const frameBytes = 64

func sizeOf(r *store.Record) int32 { return int32(len(r.Key) + len(r.Data) + frameBytes) } //nolint:gosec // a store's record is smaller

// begin returns the position to read from. It forgets everything where the log is another
// one, or lost its end.
func (x *index) begin(log *store.State) store.Pos {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.of != log.ID || log.End < x.applied {
		x.of, x.applied, x.entries, x.removed, x.bytes, x.foreign, x.moved = log.ID, 0, nil, 0, 0, false, true
		clear(x.shares)
	}
	x.goal = log.End
	x.advance(x.applied)
	return x.applied + 1
}

// change makes a change, and notes that the index has read up to a position.
func (x *index) change(to store.Pos, do func()) {
	x.mu.Lock()
	defer x.mu.Unlock()
	do()
	x.advance(to)
}

// advance notes that the index has read up to a position. mu is held.
func (x *index) advance(to store.Pos) {
	x.applied = to
	if x.moved && x.whole() {
		x.moved = false
		x.tell()
	}
	close(x.grown)
	x.grown = make(chan struct{})
}

// whole says that the index knows all letters, or all except the newest. mu is held.
func (x *index) whole() bool { return x.of != (store.ID{}) && x.applied >= x.goal }

// find returns the place of a letter in entries. mu is held.
func (x *index) find(id store.Pos) (at int, found bool) {
	return slices.BinarySearchFunc(x.entries, id, func(e entry, id store.Pos) int { return cmp.Compare(e.id, id) })
}

// put notes where a letter stands now. mu is held.
func (x *index) put(id store.Pos, key shareKey, r *store.Record) {
	at, found := x.find(id)
	if !found {
		x.entries = slices.Insert(x.entries, at, entry{id: id})
	} else if x.entries[at].pos == 0 {
		return // what was removed never comes back
	} else {
		x.count(&x.entries[at], -1)
	}
	of := x.shares[key]
	if of == nil {
		of = &share{shareKey: key}
		x.shares[key] = of
	}
	x.entries[at] = entry{id: id, pos: r.Pos, share: of, size: sizeOf(r)}
	x.count(&x.entries[at], 1)
}

// take removes a letter. mu is held.
func (x *index) take(id store.Pos) {
	at, found := x.find(id)
	if !found || x.entries[at].pos == 0 {
		return
	}
	x.count(&x.entries[at], -1)
	x.entries[at].pos = 0
	if x.removed++; 2*x.removed > len(x.entries) {
		x.entries = slices.DeleteFunc(x.entries, func(e entry) bool { return e.pos == 0 })
		x.removed = 0
	}
}

// count adds a letter to its share, or takes it away. mu is held.
func (x *index) count(e *entry, n int64) {
	of, bytes := e.share, n*int64(e.size)
	x.moved = x.moved || x.budget > 0 && max(of.bytes, of.bytes+bytes) > x.budget
	x.bytes += bytes
	of.bytes += bytes
	if of.letters += uint64(n); of.letters == 0 { //nolint:gosec // it wraps around to one less
		delete(x.shares, of.shareKey)
	}
}

// live returns those of the numbers that are letters.
func (x *index) live(numbers []uint64) (ids []store.Pos) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, n := range numbers {
		if at, found := x.find(store.Pos(n)); found && x.entries[at].pos != 0 {
			ids = append(ids, store.Pos(n))
		}
	}
	return ids
}

// next returns the first letter with a number from one to another that fits.
func (x *index) next(from, to store.Pos, fits func(*entry) bool) (entry, bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for at, _ := x.find(from); at < len(x.entries) && x.entries[at].id <= to; at++ {
		if e := &x.entries[at]; e.pos != 0 && fits(e) {
			return *e, true
		}
	}
	return entry{}, false
}

// oldest is the first position of a live letter, or the one after the last that was read.
func (x *index) oldest() store.Pos {
	x.mu.Lock()
	defer x.mu.Unlock()
	first := x.applied + 1
	for i := range x.entries {
		if pos := x.entries[i].pos; pos != 0 {
			first = min(first, pos)
		}
	}
	return first
}

// follow reads the log into the index until Close.
func (s *Store) follow() {
	_ = retry.Insist(s.life, s.log, "reading the dead letters", func(err error) bool { return errors.Is(err, store.ErrClosed) },
		func() error { return s.read(s.life) }) // it ends with the store
}

func (s *Store) read(ctx context.Context) error {
	state, err := s.letters.State(ctx)
	if err != nil {
		return err
	}
	for item, err := range s.letters.Read(ctx, s.index.begin(&state), true) {
		if err != nil {
			return err
		}
		if item.Gap != nil {
			s.name(ctx, *item.Gap)
			s.index.change(item.Gap.To, func() {})
			continue
		}
		s.index.change(item.Record.Pos, s.changeOf(ctx, item.Record))
	}
	return errors.New("it ended")
}

// changeOf is what a record changes in the index.
func (s *Store) changeOf(ctx context.Context, r *store.Record) func() {
	switch r.Kind {
	case kindLetter:
		h, _, err := headIn(r)
		if err != nil {
			s.nameRecord(ctx, r, err)
			return func() {}
		}
		return func() { s.index.put(h.ID, shareKey{r.Key, h.Source}, r) }
	case kindRemoved:
		ids, err := removedIn(r)
		if err != nil {
			s.nameRecord(ctx, r, err)
		}
		return func() {
			for _, id := range ids {
				s.index.take(id)
			}
			s.tidySoon()
		}
	default:
		return func() { s.index.foreign = true }
	}
}

// name puts a gap into the quarantine. If that fails, the quarantine's own look at the log
// names it later.
func (s *Store) name(ctx context.Context, gap store.Gap) {
	if err := s.quarantine.Name(ctx, LogName, gap); err != nil && ctx.Err() == nil {
		s.log.Error("naming lost dead letters failed; it is tried again within hours, and at the next start",
			"first_position", gap.From, "last_position", gap.To, "error", err)
	}
}

func (s *Store) nameRecord(ctx context.Context, r *store.Record, why error) {
	if err := s.quarantine.NameRecord(ctx, LogName, r.Pos, why.Error(), r.Data); err != nil && ctx.Err() == nil {
		s.log.Error("naming an unreadable dead letter failed; the next start tries again", "position", r.Pos, "error", err)
	}
}

// catchUp returns the state of the log when the index knows all letters that are in it.
func (s *Store) catchUp(ctx context.Context) (store.State, error) {
	state, err := s.letters.State(ctx)
	if err != nil {
		return state, fmt.Errorf("read the state of the dead letters: %w", err)
	}
	return state, s.await(ctx, state.End)
}

// await returns when the index has read up to a position.
func (s *Store) await(ctx context.Context, pos store.Pos) error {
	for {
		s.index.mu.Lock()
		there, grown := s.index.applied >= pos && s.index.whole(), s.index.grown
		s.index.mu.Unlock()
		if there {
			return nil
		}
		select {
		case <-grown:
		case <-ctx.Done():
			return fmt.Errorf("wait for the dead letters to be read: %w", ctx.Err())
		case <-s.life.Done():
			return store.ErrClosed
		}
	}
}
