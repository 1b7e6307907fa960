package ingest

import (
	"context"
	"encoding/binary"
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"

	"github.com/auditrelay/auditrelay/relay"
)

// DefaultRecentEvents is the default number of events a set holds. It then takes 14 MiB, and
// nearly nothing while it is empty.
const DefaultRecentEvents = 1_000_000

// generations is the number of tables. More of them would follow the window more closely,
// but each costs every new event a miss of the processor's cache.
const generations = 3

// EventKey stands for an event's source, ID and body.
//
// Events of different sources or IDs share a key with a probability of 2^-88, the few
// with only different bodies with 2^-64. Each process draws its seeds at random, so
// nobody can aim at a collision.
type EventKey [3]uint32

// RecentSet knows the events stored a short while ago, so ingest can recognise a
// repeated push and store nothing twice.
//
// Two events are the same if their source, ID and body are. The body counts, because an
// ID is the sender's claim: two events of one ID and different content are two events,
// and dropping one would lose it. Keys are keyed hashes of the three, of 88 bits.
//
// While decoding, a push looks its events up without a lock. It adds them under one lock,
// after Append returned nil. Never before: suppose two equal pushes, the second
// acknowledged during the commit of the first, and this commit fails. The event would be
// lost. So the relay stores both.
//
// It keeps 11 bytes a slot, no pointers, in three generations. New keys go into the
// newest generation. After half a window, or once it is full, a new one begins and the
// oldest goes. So an event is known for at least the window and at most one and a half.
// If more events come than the set holds, it knows at least the newest two thirds of its
// room.
//
// A set begins empty and is filled from the journal, the newest record first: the newest
// events before ingest listens, the rest later. A repeated event outside of the set
// is stored twice, and nothing worse. When the journal names a loss, the set is emptied:
// recognising a lost event would lose it for good.
//
// It is safe for concurrent use: Has takes no lock, and Add one for all its keys.
type RecentSet struct {
	span  time.Duration // from one generation to the next
	room  int           // keys in a generation
	now   func() time.Time
	seeds [3]maphash.Seed

	tables atomic.Pointer[keyTables] // published under mu

	epoch atomic.Uint64 // number of calls of Forget; written under mu

	mu      sync.Mutex
	started time.Time // start of the newest generation; guarded by mu
}

// tables are the generations, the newest first. Once published, an array does not change,
// but its tables take keys.
type keyTables [generations]*keyTable

// NewRecentSet makes an empty set for at most the given number of events, each known for window.
// Call Run too.
func NewRecentSet(window time.Duration, events int) *RecentSet {
	return newRecentSet(window, events, time.Now)
}

func newRecentSet(window time.Duration, events int, now func() time.Time) *RecentSet {
	s := &RecentSet{
		span: max(time.Millisecond, window/(generations-1)), room: max(1, events/generations), now: now, started: now(),
		seeds: [3]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed(), maphash.MakeSeed()},
	}
	s.tables.Store(&keyTables{newKeyTable(0), newKeyTable(0), newKeyTable(0)})
	return s
}

// Key returns an event's key.
func (s *RecentSet) Key(source string, id, body []byte) EventKey {
	var text [256]byte // on the stack; a rare longer text goes to the heap
	head := binary.LittleEndian.AppendUint64(text[:0], maphash.Bytes(s.seeds[0], body))
	head = binary.LittleEndian.AppendUint32(head, uint32(len(source))) //nolint:gosec // ends the source
	head = append(head, source...)
	head = append(head, id...)
	first, second := maphash.Bytes(s.seeds[1], head), maphash.Bytes(s.seeds[2], head)
	return EventKey{uint32(first >> 32), uint32(first), uint32(second)} //nolint:gosec // parts of hashes
}

// Has reports whether the key was added not too long ago.
func (s *RecentSet) Has(k EventKey) bool {
	for _, t := range s.tables.Load() {
		if t.has(k) {
			return true
		}
	}
	return false
}

// Epoch counts the calls of Forget, for Add and Restore.
func (s *RecentSet) Epoch() uint64 { return s.epoch.Load() }

// Forget removes all keys, because unknown durable events may have been lost. A repeated
// event is stored again then, without harm. Recognising a lost one would lose it for
// good.
func (s *RecentSet) Forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.epoch.Add(1)
	s.tables.Store(&keyTables{newKeyTable(0), newKeyTable(0), newKeyTable(0)})
	s.started = s.now()
}

// Add adds the keys of events just stored. Pass the epoch from before they became
// durable: after a Forget since then, the events themselves may be lost, and Add does
// nothing.
func (s *RecentSet) Add(keys []EventKey, epoch uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if epoch != s.epoch.Load() {
		return
	}
	s.expire(s.now())
	for _, k := range keys {
		if s.tables.Load()[0].count >= s.room {
			s.turn(s.now())
		}
		s.put(0, k)
	}
}

// Restore adds events of an earlier process. Call it with the newest first. It returns
// false when the set takes no older ones: they are too old, there is no room, or a Forget
// came after epoch.
func (s *RecentSet) Restore(events []relay.Event, epoch uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if epoch != s.epoch.Load() {
		return false
	}
	for i := len(events) - 1; i >= 0; i-- {
		e := &events[i]
		// The clock may have been ahead when the event was received.
		age := max(0, s.now().Sub(e.Received))
		g := int(min(age/s.span, generations))
		for g < generations && s.tables.Load()[g].count >= s.room {
			g++
		}
		if g == generations {
			return false
		}
		s.put(g, s.Key(e.Source, []byte(e.ID), e.Body))
	}
	return true
}

// Run removes old generations, and gives their memory back, while nothing is added. It
// returns when ctx ends.
func (s *RecentSet) Run(ctx context.Context) {
	tick := time.NewTicker(s.span)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			s.mu.Lock()
			s.expire(s.now())
			s.mu.Unlock()
		case <-ctx.Done():
			return
		}
	}
}

// expire begins each due generation. mu is held.
func (s *RecentSet) expire(now time.Time) {
	for n := 0; n < generations && now.Sub(s.started) >= s.span; n++ {
		s.turn(s.started.Add(s.span))
	}
	if now.Sub(s.started) >= s.span { // no key is old enough
		s.started = now
	}
}

// turn drops the oldest generation and begins a new one with room for as many keys as the
// last one took. mu is held.
func (s *RecentSet) turn(now time.Time) {
	old := s.tables.Load()
	s.tables.Store(&keyTables{newKeyTable(old[0].count), old[0], old[1]})
	s.started = now
}

// put adds a key to a generation. mu is held.
func (s *RecentSet) put(generation int, k EventKey) {
	old := s.tables.Load()
	t := old[generation]
	if t.full() {
		// Readers of the old table may go on with it: it stays unchanged.
		grown := *old
		t = t.grown(s.room)
		grown[generation] = t
		s.tables.Store(&grown)
	}
	t.put(k)
}
