package journal

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/store"
	"github.com/auditrelay/auditrelay/internal/store/lease"
	"github.com/auditrelay/auditrelay/internal/testbed/waiting"
	"github.com/auditrelay/auditrelay/relay"
	"github.com/auditrelay/auditrelay/relay/relaytest"
)

// Where several batches are under way, each can be acknowledged while later
// ones are not, and those come again.
func TestAnOlderBatchIsAcknowledged(t *testing.T) {
	t.Parallel()
	j := open(t, t.TempDir(), testConfig)
	events := relaytest.Events(5)
	for i := range events {
		j.push(t, events[i:i+1])
	}
	one := relay.BatchLimit{Events: 1, Bytes: 1 << 20}
	s, err := j.Source(t.Context(), "k", one)
	require.NoError(t, err)
	var given []relay.Batch
	for range 4 {
		b, err := s.Next(t.Context())
		require.NoError(t, err)
		given = append(given, b)
	}
	require.NoError(t, s.Ack(t.Context(), given[1].Position))
	require.Error(t, s.Ack(t.Context(), given[0].Position), "it is covered already")
	require.Error(t, s.Ack(t.Context(), 5), "it was not given out")
	require.NoError(t, s.Ack(t.Context(), given[2].Position))
	n, err := j.delivered(t.Context())
	require.NoError(t, err)
	assert.EqualValues(t, 3, n)
	s.Close()
	s = j.source(t, "k")
	defer s.Close()
	assert.Equal(t, ids(events[3:]), ids(read(t, s, 2, true)))
}

// Whoever asks with a context that has ended, and then again, lacks nothing.
func TestAnEndedContextCostsNoEvent(t *testing.T) {
	t.Parallel()
	j := open(t, t.TempDir(), testConfig)
	events := relaytest.Events(2)
	j.push(t, events[:1])
	j.push(t, events[1:])
	s := j.source(t, "k")
	defer s.Close()
	waiting.Until(t, func() bool { return len(s.decoded) == 2 })
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for range 20 { // a record that is there counts as much as the end
		_, err := s.Next(ended)
		require.ErrorIs(t, err, context.Canceled)
	}
	assert.Equal(t, ids(events), ids(read(t, s, 2, true)))
}

// Records set aside make no batch. To pass over them must not acknowledge a batch before
// them, still under way.
func TestWhatIsSetAsideDoesNotCoverWhatIsUnderWay(t *testing.T) {
	t.Parallel()
	j := open(t, t.TempDir(), testConfig)
	events := relaytest.Events(2)
	damaged := func() {
		j.publish(t, []byte("damaged"))
	}
	acked := func(n uint64) func() bool {
		return func() bool {
			at, err := j.delivered(t.Context())
			return err == nil && at == n
		}
	}
	s := j.source(t, "k")
	defer s.Close()
	j.push(t, events[:1])
	first, err := s.Next(t.Context())
	require.NoError(t, err)
	damaged()
	nothingComes := func() {
		short, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		_, err := s.Next(short)
		require.ErrorIs(t, err, context.DeadlineExceeded)
	}
	passed := func() bool {
		nothingComes()
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.given[0].through.pos == 2
	}
	waiting.Until(t, passed)
	require.True(t, acked(0)(), "the first batch is under way")
	require.NoError(t, s.Ack(t.Context(), first.Position))
	waiting.Until(t, acked(2), "the damaged record goes with it")

	damaged()
	waiting.Until(t, func() bool { nothingComes(); return acked(3)() }, "nothing before it is under way")
}

// A batch that closely follows another one takes in records for a moment. A full one, or one
// that follows a pause, is given at once.
func TestGather(t *testing.T) {
	t.Parallel()
	of := func(n int) fetched {
		return fetched{mark: mark{pos: store.Pos(n)}, size: 100, events: make([]relay.Event, n)}
	}
	for name, c := range map[string]struct {
		sinceLast time.Duration
		first     int // events
		limit     relay.BatchLimit
		cancelled bool
		events    int // in the batch
		after     time.Duration
	}{
		"closely":            {time.Millisecond, 1, relay.BatchLimit{Events: 100, Bytes: 1000}, false, 1 + 2 + 3, 4 * time.Millisecond},
		"after a pause":      {time.Second, 1, relay.BatchLimit{Events: 100, Bytes: 1000}, false, 1, 0},
		"full of events":     {0, 1, relay.BatchLimit{Events: 3, Bytes: 1000}, false, 1 + 2, time.Millisecond},
		"full of bytes":      {0, 1, relay.BatchLimit{Events: 100, Bytes: 200}, false, 1 + 2, time.Millisecond},
		"the next is larger": {0, 1, relay.BatchLimit{Events: 5, Bytes: 1000}, false, 1 + 2, 2 * time.Millisecond},
		"large enough":       {0, lingerEvents - 1, relay.BatchLimit{Events: 9999, Bytes: 1000}, false, lingerEvents + 1, time.Millisecond},
		"with a wait":        {time.Second, 1, relay.BatchLimit{Events: 9999, Bytes: 1 << 20, Wait: 20 * time.Millisecond}, false, 1 + 2 + 3 + 4, 20 * time.Millisecond},
		"many with a wait":   {0, lingerEvents, relay.BatchLimit{Events: 9999, Bytes: 1 << 20, Wait: 20 * time.Millisecond}, false, lingerEvents + 2 + 3 + 4, 20 * time.Millisecond},
		"full, with a wait":  {0, 1, relay.BatchLimit{Events: 3, Bytes: 1000, Wait: time.Hour}, false, 1 + 2, time.Millisecond},
		"told to end":        {0, 1, relay.BatchLimit{Events: 100, Bytes: 1000}, true, 1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if c.cancelled {
					cancel()
				}
				s := &Source{limit: c.limit, decoded: make(chan fetched, 3), last: time.Now().Add(-c.sinceLast)}
				var coming sync.WaitGroup
				defer coming.Wait()
				coming.Go(func() {
					for _, n := range []int{2, 3, 4} { // the first two after 1 and 2 ms
						if n == 4 {
							time.Sleep(linger)
						}
						time.Sleep(time.Millisecond)
						s.decoded <- of(n)
					}
				})
				start := time.Now()
				events, _ := s.gather(ctx, of(c.first))
				assert.Len(t, events, c.events)
				assert.Equal(t, c.after, time.Since(start))
			})
		})
	}
}

// A sink that was away, or delivers slowly, gets full batches however small the records are.
func TestTheBatchesOfABacklogAreFull(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &Source{turn: new(lease.Turn), limit: relay.BatchLimit{Events: 100, Bytes: 1 << 20}, decoded: make(chan fetched, decodedAhead), last: time.Now().Add(-time.Hour)}
		var reading sync.WaitGroup
		defer reading.Wait()
		reading.Go(func() {
			for i := range store.Pos(230) {
				if i >= 200+decodedAhead+1 {
					time.Sleep(linger - time.Millisecond) // they come one by one now
				}
				s.decoded <- fetched{mark: mark{pos: i + 1}, size: 100, events: make([]relay.Event, 1)}
			}
		})
		next := func(events int, after time.Duration) {
			synctest.Wait()
			start := time.Now()
			batch, err := s.Next(t.Context())
			require.NoError(t, err)
			assert.Len(t, batch.Events, events)
			assert.Equal(t, after, time.Since(start))
			time.Sleep(time.Second - time.Since(start)) // the sink delivers
		}
		next(100, 0)
		next(100, 0)
		next(decodedAhead+1+int(backlogLinger/(linger-time.Millisecond)), backlogLinger)
		next(230-200-15, backlogLinger)
	})
}

// A place is the same whatever else is in the batch, and after a restart, so that a sink knows an
// event again.
func TestPlacesOfEvents(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	j := open(t, dir, testConfig)
	events := relaytest.Events(12)
	for _, n := range [][2]int{{0, 5}, {5, 6}, {6, 12}} {
		j.push(t, events[n[0]:n[1]])
	}
	type place struct {
		record relay.Record
		index  int
	}
	places := func(limit relay.BatchLimit) (all []place) {
		s, err := j.Source(t.Context(), "k", limit)
		require.NoError(t, err)
		defer s.Close()
		s.Place()
		for _, e := range read(t, s, len(events), false) {
			all = append(all, place{*e.Record, e.Index})
		}
		return all
	}
	want := places(relay.BatchLimit{Events: 1000, Bytes: 1 << 20})
	require.Equal(t, want, places(relay.BatchLimit{Events: 1, Bytes: 1 << 20}))
	j.shut(t)
	j = open(t, dir, testConfig)
	require.Equal(t, want, places(relay.BatchLimit{Events: 7, Bytes: 1 << 20}))
	for i, at := range []struct {
		position uint64
		index    int
	}{0: {1, 0}, 4: {1, 4}, 5: {2, 0}, 6: {3, 0}, 11: {3, 5}} {
		if at.position > 0 {
			assert.Equal(t, at.position, want[i].record.Position)
			assert.Equal(t, at.index, want[i].index)
		}
	}
	s := j.source(t, "another")
	defer s.Close()
	assert.Nil(t, read(t, s, 1, false)[0].Record, "only where a sink asks for it")

	holds, err := j.Holds(t.Context(), want[11].record)
	require.NoError(t, err)
	assert.True(t, holds)
	for _, other := range []relay.Record{{Position: 3, Checksum: 1}, {Position: 4, Checksum: want[11].record.Checksum}} {
		holds, err := j.Holds(t.Context(), other)
		require.NoError(t, err)
		assert.False(t, holds, "%v", other)
	}
}

// The events of a record that is given in pieces are numbered through.
func TestPlacesInPieces(t *testing.T) {
	t.Parallel()
	j := open(t, t.TempDir(), testConfig)
	b := storedBombs()["a thousand labels copied for each event"]
	require.NoError(t, j.Append(t.Context(), b))
	s, err := j.Source(t.Context(), "k", relay.BatchLimit{Events: 5000, Bytes: 4 << 20})
	require.NoError(t, err)
	defer s.Close()
	s.Place()
	for n := 0; n < b.Len(); {
		batch, err := s.Next(t.Context())
		require.NoError(t, err)
		require.Less(t, len(batch.Events), b.Len(), "it comes in pieces")
		for i := range batch.Events {
			require.EqualValues(t, 1, batch.Events[i].Record.Position)
			require.Equal(t, n+i, batch.Events[i].Index)
		}
		n += len(batch.Events)
	}
}
