// Package recent knows the events that became durable a short while ago, so that
// ingest recognises a repeated push, and does not store it again.
//
// Two events are the same if source, ID and body are. The body counts, because an ID
// is the sender's claim: two events of one ID and different content are two events, and
// to drop one would lose it. Keys are 128-bit keyed hashes of the three.
//
// A push looks its events up without a lock as it is decoded, and adds them under one
// lock after Append returned nil. Never before: suppose the second of two equal pushes were
// acknowledged while the first is being committed, and that commit failed. The event
// would be lost. So both are stored.
//
// A [Set] keeps 17 bytes a slot, no pointers, in three generations. New keys go into
// the newest generation; after half a window, or once it is full, a new one begins and the
// oldest goes. So an event is known for at least the window and at most one and a half,
// unless more events have come since than the set holds: then for at least the newest two
// thirds of its room.
//
// A set begins empty, and is filled from the journal, the newest record first: the newest events
// before ingest listens, the rest behind it. An event pushed again before it is known, or
// beyond the set's reach, is stored twice, and nothing worse. When the journal names a loss, the
// set is emptied: a lost event that is recognised would be lost for good.
package recent

import (
	"context"
	"encoding/binary"
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"

	"github.com/auditrelay/auditrelay/relay"
)

// DefaultEvents is how many events a set holds unless told otherwise. It
// then takes 25.5 MiB, and nearly nothing while it is empty.
const DefaultEvents = 1_000_000

// generations is how many tables a lookup asks: more would hold the window more
// closely, and each costs a miss of the processor's cache for every new event.
const generations = 3

// Key stands for an event's source, ID and body.
//
// Two events of different sources or IDs have one with a probability of 2^-128,
// two that differ in the body alone with 2^-64: of these there are few. The
// seeds are drawn at random in each process, so nobody can aim at it.
type Key [2]uint64

// Set is a set of keys. It is safe for concurrent use: Has takes no lock, and
// Add one for all its keys.
type Set struct {
	span  time.Duration // after which a generation is followed by the next
	room  int           // keys in a generation
	now   func() time.Time
	seeds [3]maphash.Seed

	tables atomic.Pointer[tables] // published under mu

	epoch atomic.Uint64 // how often all was forgotten; written under mu

	mu      sync.Mutex
	started time.Time // when the newest generation was begun; guarded by mu
}

// tables are the generations, the newest first. It is not changed once it is
// published, but for the keys that the tables take.
type tables [generations]*table

// New makes an empty set that knows events for window and holds at most the
// given number of them. Call Run too.
func New(window time.Duration, events int) *Set { return newSet(window, events, time.Now) }

func newSet(window time.Duration, events int, now func() time.Time) *Set {
	s := &Set{
		span: max(time.Millisecond, window/(generations-1)), room: max(1, events/generations), now: now, started: now(),
		seeds: [3]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed(), maphash.MakeSeed()},
	}
	s.tables.Store(&tables{newTable(0), newTable(0), newTable(0)})
	return s
}

// Key gives an event's key.
func (s *Set) Key(source string, id, body []byte) Key {
	var text [512]byte // on the stack; what is longer is rare and goes elsewhere
	head := binary.LittleEndian.AppendUint64(text[:0], maphash.Bytes(s.seeds[0], body))
	head = binary.LittleEndian.AppendUint32(head, uint32(len(source))) //nolint:gosec // ends the source
	head = append(head, source...)
	head = append(head, id...)
	return Key{maphash.Bytes(s.seeds[1], head), maphash.Bytes(s.seeds[2], head)}
}

// Has reports whether the key was added, and not too long ago.
func (s *Set) Has(k Key) bool {
	for _, t := range s.tables.Load() {
		if t.has(k) {
			return true
		}
	}
	return false
}

// Epoch is for Add and Restore.
func (s *Set) Epoch() uint64 { return s.epoch.Load() }

// Forget lets go of all keys: events may have been lost that were durable, and
// which is not known. Those that are pushed again are stored again, which does no
// harm; to recognise one that is lost would lose it for good.
func (s *Set) Forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.epoch.Add(1)
	s.tables.Store(&tables{newTable(0), newTable(0), newTable(0)})
	s.started = s.now()
}

// Add adds the keys of events that have just become durable. epoch is what Epoch
// gave before they did: what was forgotten since may include them.
func (s *Set) Add(keys []Key, epoch uint64) {
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

// Restore adds events that an earlier process made durable. It is called with
// the newest first, and returns false when the set takes no older ones: they are
// too old, there is no room, or the set was emptied since Epoch gave epoch.
func (s *Set) Restore(events []relay.Event, epoch uint64) bool {
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

// Run lets go of what is older than the window, and gives its memory back,
// while nothing is added. It returns when ctx ends.
func (s *Set) Run(ctx context.Context) {
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

// expire begins the generations that are due. mu is held.
func (s *Set) expire(now time.Time) {
	for n := 0; n < generations && now.Sub(s.started) >= s.span; n++ {
		s.turn(s.started.Add(s.span))
	}
	if now.Sub(s.started) >= s.span { // all are new
		s.started = now
	}
}

// turn lets go of the oldest generation and begins a new one, of a size for as
// many keys as the last one took. mu is held.
func (s *Set) turn(now time.Time) {
	old := s.tables.Load()
	s.tables.Store(&tables{newTable(old[0].count), old[0], old[1]})
	s.started = now
}

// put adds a key to a generation. mu is held.
func (s *Set) put(generation int, k Key) {
	old := s.tables.Load()
	t := old[generation]
	if t.full() {
		// Whoever looks something up meanwhile asks the old table, which stays
		// as it is.
		grown := *old
		t = t.grown()
		grown[generation] = t
		s.tables.Store(&grown)
	}
	t.put(k)
}
