package ingest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/relay"
)

// clock is set by hand.
type clock struct{ time.Time }

func (c *clock) now() time.Time           { return c.Time }
func (c *clock) advance(by time.Duration) { c.Time = c.Add(by) }

func testSet(window time.Duration, events int) (*RecentSet, *clock) {
	c := &clock{time.Unix(1_760_000_000, 0)}
	return newRecentSet(window, events, c.now), c
}

func (s *RecentSet) key(i int) EventKey {
	return s.Key("/s", fmt.Appendf(nil, "id-%d", i), []byte("body"))
}

// keys returns the keys of the events in [from, to).
func (s *RecentSet) keys(from, to int) (all []EventKey) {
	for i := from; i < to; i++ {
		all = append(all, s.key(i))
	}
	return all
}

// known counts the events of [from, to) in s.
func (s *RecentSet) known(from, to int) (n int) {
	for i := from; i < to; i++ {
		if s.Has(s.key(i)) {
			n++
		}
	}
	return n
}

// bytes is the memory of the tables.
func (s *RecentSet) bytes() (n int) {
	for _, t := range s.tables.Load() {
		n += 8*len(t.tags) + 8*len(t.high) + 2*len(t.low)
	}
	return n
}

func TestOnlyTheSameSourceIDAndBodyAreTheSame(t *testing.T) {
	t.Parallel()
	s, _ := testSet(time.Minute, 1000)
	long := make([]byte, 700)
	events := [][3]string{
		{"/a", "1", "x"},
		{"/a", "1", "y"},
		{"/a", "2", "x"},
		{"/b", "1", "x"},
		// The end of one part is not the beginning of the next.
		{"/a1", "", "x"},
		{"/", "a1", "x"},
		{"", "/a1", "x"},
		{"/a", "1x", ""},
		{"", "", ""},
		{"/a", string(long), "x"},
		{"/a", string(long[1:]), "x"},
		{"/a", "1", string(long)},
		{"/a", "1", string(long[1:])},
	}
	seen := map[EventKey]int{}
	for i, e := range events {
		k := s.Key(e[0], []byte(e[1]), []byte(e[2]))
		before, twice := seen[k]
		require.False(t, twice, "events %d and %d have one key", before, i)
		seen[k] = i
		require.False(t, s.Has(k))
		s.Add([]EventKey{k}, s.Epoch())
		require.True(t, s.Has(s.Key(e[0], []byte(e[1]), []byte(e[2]))))
	}
	other, _ := testSet(time.Minute, 1000)
	assert.NotEqual(t, s.key(1), other.key(1), "the seeds are drawn anew")
	assert.NotEqual(t, s.key(1)[0], s.key(1)[1])
}

// Whenever an event came, it is known for the window, and not for much longer.
func TestTheWindow(t *testing.T) {
	t.Parallel()
	const window = 10 * time.Second
	for offset := range 10 {
		s, c := testSet(window, 1000)
		c.advance(time.Duration(offset) * time.Second)
		s.Add(s.keys(0, 1), s.Epoch())
		for age := range 30 {
			known := s.Has(s.key(0))
			if age <= 10 {
				require.True(t, known, "added at %ds, forgotten at the age of %ds", offset, age)
			}
			if age >= 15 {
				require.False(t, known, "added at %ds, known at the age of %ds", offset, age)
			}
			c.advance(time.Second)
			s.Add([]EventKey{s.key(age + 1)}, s.Epoch())
		}
	}
}

func TestTheOldestGoWhenTheSetIsFull(t *testing.T) {
	t.Parallel()
	s, _ := testSet(time.Hour, 3000)
	keys := s.keys(0, 20_000)
	known := func(from, to int) (n int) {
		for _, k := range keys[from:to] {
			if s.Has(k) {
				n++
			}
		}
		return n
	}
	for end := 100; end <= len(keys); end += 100 {
		s.Add(keys[end-100:end], s.Epoch())
		require.Equal(t, min(end, 2000), known(max(0, end-2000), end), "the newest two thirds are known")
		require.LessOrEqual(t, known(0, end), 3000)
	}
	s.Add(keys[:10_000], s.Epoch()) // a push larger than the set
	assert.Equal(t, 2000, known(8000, 10_000))
	assert.Zero(t, known(10_000, 20_000))
}

func TestWhatIsAddedTwiceCountsOnce(t *testing.T) {
	t.Parallel()
	s, _ := testSet(time.Hour, 3000)
	for range 100 {
		s.Add(s.keys(0, 900), s.Epoch())
	}
	assert.Equal(t, 900, s.known(0, 900))
	assert.Equal(t, 900, s.tables.Load()[0].count)
}

func TestItForgetsWhileNothingComes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := NewRecentSet(10*time.Minute, 100_000)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); s.Run(ctx) }()
		s.Add(s.keys(0, 20_000), s.Epoch())
		time.Sleep(10*time.Minute - time.Second)
		assert.Equal(t, 20_000, s.known(0, 20_000))
		// By then the generation is gone, and so is the empty one made of the same size.
		time.Sleep(15 * time.Minute)
		assert.Zero(t, s.known(0, 20_000))
		assert.Less(t, s.bytes(), 4<<10, "memory is given back")
		cancel()
		<-done
	})
}

func TestAClockThatJumps(t *testing.T) {
	t.Parallel()
	s, c := testSet(time.Minute, 1000)
	s.Add(s.keys(0, 10), s.Epoch())
	c.advance(-time.Hour)
	s.Add(s.keys(10, 20), s.Epoch())
	assert.Equal(t, 20, s.known(0, 20))
	c.advance(100 * time.Hour)
	s.Add(s.keys(20, 30), s.Epoch())
	assert.Equal(t, 10, s.known(0, 30))
	c.advance(45 * time.Second)
	s.Add(nil, s.Epoch())
	c.advance(14 * time.Second)
	s.Add(nil, s.Epoch())
	assert.Equal(t, 10, s.known(20, 30))
}

func TestRestore(t *testing.T) {
	t.Parallel()
	const window = 10 * time.Minute
	s, c := testSet(window, 300)
	event := func(i int, age time.Duration) relay.Event {
		return relay.Event{Source: "/s", ID: fmt.Sprintf("id-%d", i), Body: []byte("body"), Received: c.Add(-age)}
	}
	require.True(t, s.Restore([]relay.Event{event(1, time.Minute), event(0, -time.Hour)}, s.Epoch()), "received by a clock that was ahead")
	require.True(t, s.Restore([]relay.Event{event(3, 9*time.Minute), event(2, 4*time.Minute)}, s.Epoch()))
	assert.Equal(t, 4, s.known(0, 4))
	c.advance(9*time.Minute + 30*time.Second)
	s.Add(nil, s.Epoch())
	assert.Equal(t, 2, s.known(0, 2), "younger than the window")
	c.advance(15 * time.Minute)
	s.Add(nil, s.Epoch())
	assert.Zero(t, s.known(0, 4))

	s, c = testSet(window, 300)
	require.False(t, s.Restore([]relay.Event{event(0, time.Hour)}, s.Epoch()), "too old")
	assert.Zero(t, s.known(0, 1))
	n := 0
	for s.Restore([]relay.Event{event(n, 0)}, s.Epoch()) {
		n++
	}
	assert.Equal(t, 300, n, "full of the newest")
	assert.Equal(t, 300, s.known(0, 301))
	s.Add(s.keys(1000, 1001), s.Epoch())
	assert.Equal(t, 200, s.known(0, 300), "the newest of them are kept longest")
	assert.Equal(t, 200, s.known(0, 200))
}

// Events read back while the relay runs may turn out to be lost.
func TestRestoreEndsWhenTheSetIsEmptied(t *testing.T) {
	t.Parallel()
	s, c := testSet(time.Minute, 300)
	events := []relay.Event{{Source: "/s", ID: "id-0", Body: []byte("body"), Received: c.Time}}
	epoch := s.Epoch()
	require.True(t, s.Restore(events, epoch))
	s.Forget()
	require.False(t, s.Restore(events, epoch))
	assert.Zero(t, s.known(0, 1))
}

// Readers find every added key at once, through growth and turns.
func TestLookupsBesideAdds(t *testing.T) {
	t.Parallel()
	s := NewRecentSet(time.Hour, 150_000) // two turns, and no key is dropped
	var adding, looking sync.WaitGroup
	stop := make(chan struct{})
	var newest [4]struct {
		sync.Mutex
		keys []EventKey
	}
	for w := range newest {
		adding.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(w), 0))
			for n := 0; n < 30_000; {
				size := 1 + rng.IntN(200)
				keys := s.keys(w*1_000_000+n, w*1_000_000+n+size)
				s.Add(keys, s.Epoch())
				newest[w].Lock()
				newest[w].keys = keys
				newest[w].Unlock()
				n += size
			}
		})
		looking.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				newest[w].Lock()
				keys := newest[w].keys
				newest[w].Unlock()
				for _, k := range keys {
					if !s.Has(k) {
						t.Error("an event that was added is not known")
						return
					}
				}
				if s.Has(s.key(-1)) {
					t.Error("an event that was never added is known")
					return
				}
				runtime.Gosched()
			}
		})
	}
	adding.Wait()
	close(stop)
	looking.Wait()
}

func TestMemory(t *testing.T) {
	t.Parallel()
	s, c := testSet(10*time.Minute, DefaultRecentEvents)
	assert.Less(t, s.bytes(), 4<<10, "an empty set takes nearly nothing")
	random, keys := rand.New(rand.NewPCG(1, 1)), make([]EventKey, 1000)
	for n := 0; n < 2*DefaultRecentEvents; n += len(keys) {
		for i := range keys {
			keys[i] = EventKey{random.Uint32(), random.Uint32(), random.Uint32()}
		}
		s.Add(keys, s.Epoch())
		require.LessOrEqual(t, s.bytes(), 14<<20+64<<10)
	}
	assert.InDelta(t, 14<<20, s.bytes(), 64<<10)
	for range 4 {
		c.advance(5 * time.Minute)
		s.Add(nil, s.Epoch())
	}
	assert.Less(t, s.bytes(), 4<<10)
}

func TestRecentAllocatesNothingPerEvent(t *testing.T) {
	s, _ := testSet(10*time.Minute, 1_000_000)
	s.Add(s.keys(0, 100_000), s.Epoch())
	body, id := make([]byte, 600), make([]byte, 20)
	keys := make([]EventKey, 1)
	assert.Zero(t, testing.AllocsPerRun(1000, func() {
		id[0]++
		keys[0] = s.Key("/projects/acme/environments/live", id, body)
		if !s.Has(keys[0]) {
			s.Add(keys, s.Epoch())
		}
	}))
}

// BenchmarkNewEvent is a new event's way through a full set: key, lookup and,
// with the others of its push, the insertion.
func BenchmarkNewEvent(b *testing.B) {
	for _, push := range []int{1, 100, 1000} {
		b.Run(fmt.Sprintf("push=%d", push), func(b *testing.B) {
			s := NewRecentSet(time.Hour, DefaultRecentEvents)
			body, id := make([]byte, 617), make([]byte, 24)
			one := func(i int) EventKey {
				for n := range 8 {
					id[n] = byte(i >> (8 * n))
				}
				copy(body[100:], id)
				return s.Key("/projects/acme/environments/live", id, body)
			}
			keys := make([]EventKey, 0, push)
			for i := range 2 * DefaultRecentEvents {
				if keys = append(keys, one(-i)); len(keys) == push {
					s.Add(keys, s.Epoch())
					keys = keys[:0]
				}
			}
			b.ReportAllocs()
			b.ResetTimer()
			for i := range b.N {
				k := one(i)
				if s.Has(k) {
					b.Fatal("a new event is known")
				}
				if keys = append(keys, k); len(keys) == push {
					s.Add(keys, s.Epoch())
					keys = keys[:0]
				}
			}
		})
	}
}

func BenchmarkKey(b *testing.B) {
	s := NewRecentSet(time.Hour, 1)
	body, id := make([]byte, 617), make([]byte, 24)
	b.SetBytes(617)
	for b.Loop() {
		s.Key("/projects/acme/environments/live", id, body)
	}
}

func BenchmarkHas(b *testing.B) {
	s := NewRecentSet(time.Hour, DefaultRecentEvents)
	s.Add(s.keys(0, DefaultRecentEvents), s.Epoch())
	rng := rand.New(rand.NewPCG(1, 1))
	for b.Loop() {
		s.Has(EventKey{rng.Uint32(), 1, 1})
	}
}

func TestForget(t *testing.T) {
	t.Parallel()
	s := NewRecentSet(time.Hour, 100)
	a, b := s.Key("s", []byte("a"), nil), s.Key("s", []byte("b"), nil)
	before := s.Epoch()
	s.Add([]EventKey{a}, before)
	require.True(t, s.Has(a))
	s.Forget()
	require.False(t, s.Has(a))
	s.Add([]EventKey{b}, before)
	require.False(t, s.Has(b), "it may have been lost meanwhile")
	s.Add([]EventKey{b}, s.Epoch())
	require.True(t, s.Has(b))
}
