// Package storetest is the contract suite of package store: what every backend has to show.
// Crashes, damage and full disks are each backend's own, since they happen to its files.
package storetest

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/store"
)

// Backend is a store under test.
type Backend interface {
	// Log opens a log, or makes it. Its budget is at least 16 MiB.
	Log(t testing.TB, name string) store.Log
	// LogAs is Log for a log that is made with an id.
	LogAs(t testing.TB, name string, id store.ID) store.Log
	Table() store.Table
	// A Backend may have a method LosesLazyValues, which says that a kill costs the lazy
	// values of the last moment, as a power cut does.

	// Kill ends the process that has the store open, without any farewell, and opens the
	// store again. Logs have to be opened again, too.
	Kill(t testing.TB)
}

// Run runs the suite, with a new, empty store for each test.
func Run(t *testing.T, open func(t testing.TB) Backend) {
	for _, test := range append(races(), []test{
		{"RecordsComeBackAsTheyWere", recordsComeBack},
		{"ConcurrentAppendsAreAllThere", concurrentAppends},
		{"AnAppendAtAnotherEndIsRefused", appendAt},
		{"AReaderFollows", follow},
		{"ATooLargeRecordIsNotStored", tooLarge},
		{"TrimmedPositionsAreAGap", trim},
		{"ATimeIsFound", seek},
		{"AKillLosesNothing", kill},
		{"LogsAreApart", apart},
		{"ALogTakesOverAnother", takeOver},
		{"AValueIsReplacedUnderACondition", conditions},
		{"AnotherKeyGuardsAValue", guards},
		{"ValuesSurviveAKill", valuesSurvive},
		{"AWatchSeesEachKey", watch},
		{"TheValuesOfAPrefixAreListed", list},
	}...) {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			test.run(t, open(t))
		})
	}
}

func draft(data string) store.Draft { return store.Draft{Kind: 3, Key: "key", Data: []byte(data)} }

// items reads a log to its end. Every position from the first one on is there, in order.
func items(t testing.TB, l store.Log, from store.Pos) (records []store.Record, gaps []store.Gap) {
	next := from
	for item, err := range l.Read(t.Context(), from, false) {
		require.NoError(t, err)
		require.NotEqual(t, item.Record == nil, item.Gap == nil, "an item is a record or a gap")
		if g := item.Gap; g != nil {
			require.Equal(t, next, g.From)
			require.GreaterOrEqual(t, g.To, g.From)
			gaps, next = append(gaps, *g), g.To+1
			continue
		}
		require.Equal(t, next, item.Record.Pos)
		r := *item.Record
		r.Data = bytes.Clone(r.Data)
		records, next = append(records, r), next+1
	}
	return records, gaps
}

func recordsComeBack(t *testing.T, b Backend) {
	l := b.Log(t, "events")
	state, err := l.State(t.Context())
	require.NoError(t, err)
	assert.Equal(t, store.Pos(1), state.First)
	assert.Equal(t, store.Pos(0), state.End)
	want := []store.Draft{
		{Kind: 1, Data: []byte("one")},
		{Kind: 255, Key: strings.Repeat("k", store.MaxKey), Data: nil},
		{Key: "é\x00\n", Data: bytes.Repeat([]byte{0, 255}, 150_000)},
	}
	first, err := l.Append(t.Context(), want...)
	require.NoError(t, err)
	assert.Equal(t, store.Pos(1), first)
	records, gaps := items(t, l, 1)
	assert.Empty(t, gaps)
	require.Len(t, records, len(want))
	for i, r := range records {
		assert.Equal(t, want[i].Kind, r.Kind)
		assert.Equal(t, want[i].Key, r.Key)
		assert.Equal(t, string(want[i].Data), string(r.Data))
		assert.False(t, i > 0 && r.Time.Before(records[i-1].Time), "times never decrease")
	}
	records, _ = items(t, l, 3)
	assert.Len(t, records, 1)
	records, _ = items(t, l, 4)
	assert.Empty(t, records)
}

func concurrentAppends(t *testing.T, b Backend) {
	l := b.Log(t, "events")
	const senders, each = 16, 40
	var mu sync.Mutex
	acked := map[store.Pos]string{}
	var wg sync.WaitGroup
	for sender := range senders {
		wg.Go(func() {
			last := store.Pos(0)
			for i := range each {
				a, b := fmt.Sprintf("%d/%d/a", sender, i), fmt.Sprintf("%d/%d/b", sender, i)
				first, err := l.Append(t.Context(), draft(a), draft(b))
				if !assert.NoError(t, err) || !assert.Greater(t, first, last, "an append that follows another has a larger position") {
					return
				}
				last = first + 1
				mu.Lock()
				acked[first], acked[first+1] = a, b
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	records, gaps := items(t, l, 1)
	assert.Empty(t, gaps)
	require.Len(t, records, 2*senders*each)
	require.Len(t, acked, len(records), "no position was given out twice")
	for _, r := range records {
		assert.Equal(t, acked[r.Pos], string(r.Data))
	}
}

func appendAt(t *testing.T, b Backend) {
	l := b.Log(t, "trail")
	first, err := l.AppendAt(t.Context(), 0, draft("one"))
	require.NoError(t, err)
	assert.Equal(t, store.Pos(1), first)
	_, err = l.AppendAt(t.Context(), 0, draft("another one"))
	require.ErrorIs(t, err, store.ErrConflict)
	_, err = l.AppendAt(t.Context(), 2, draft("three"))
	require.ErrorIs(t, err, store.ErrConflict)
	first, err = l.AppendAt(t.Context(), 1, draft("two"), draft("three"))
	require.NoError(t, err)
	assert.Equal(t, store.Pos(2), first)
	records, _ := items(t, l, 1)
	assert.Len(t, records, 3, "a refused append stores nothing")
}

func follow(t *testing.T, b Backend) {
	l := b.Log(t, "events")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	seen := make(chan string)
	ended := make(chan error, 1)
	go func() {
		for item, err := range l.Read(ctx, 1, true) {
			if err != nil {
				ended <- err
				return
			}
			seen <- string(item.Record.Data)
		}
	}()
	for i := range 50 {
		_, err := l.Append(t.Context(), draft(fmt.Sprint(i)))
		require.NoError(t, err)
		require.Equal(t, fmt.Sprint(i), <-seen)
	}
	cancel()
	require.ErrorIs(t, <-ended, context.Canceled)
}

func tooLarge(t *testing.T, b Backend) {
	l := b.Log(t, "events")
	_, err := l.Append(t.Context(), draft("small"), store.Draft{Data: make([]byte, l.MaxRecord()+1)})
	require.ErrorIs(t, err, store.ErrTooLarge)
	_, err = l.Append(t.Context(), store.Draft{Key: strings.Repeat("k", store.MaxKey+1)})
	require.ErrorIs(t, err, store.ErrTooLarge)
	_, err = l.Append(t.Context(), store.Draft{Data: make([]byte, l.MaxRecord())})
	require.NoError(t, err, "the largest one")
	records, _ := items(t, l, 1)
	assert.Len(t, records, 1)
}

// fill appends so many records of 64 KiB.
func fill(t testing.TB, l store.Log, n int) {
	for i := range n {
		_, err := l.Append(t.Context(), store.Draft{Key: fmt.Sprint(i), Data: make([]byte, 64<<10)})
		require.NoError(t, err)
	}
}

func trim(t *testing.T, b Backend) {
	l := b.Log(t, "events")
	fill(t, l, 100)
	before, err := l.State(t.Context())
	require.NoError(t, err)
	require.NoError(t, l.Trim(t.Context(), 60))
	after, err := l.State(t.Context())
	require.NoError(t, err)
	assert.Greater(t, after.First, store.Pos(1))
	assert.LessOrEqual(t, after.First, store.Pos(60), "nothing more is dropped than was asked for")
	assert.Equal(t, before.End, after.End)
	assert.Less(t, after.Bytes, before.Bytes)
	records, gaps := items(t, l, 1)
	assert.Equal(t, []store.Gap{{From: 1, To: after.First - 1, Why: store.Trimmed}}, gaps)
	assert.Len(t, records, int(after.End-after.First+1))
	require.NoError(t, l.Trim(t.Context(), 1), "what is gone can be trimmed again")
	b.Kill(t)
	_, again := items(t, b.Log(t, "events"), 1)
	assert.Equal(t, gaps, again)
}

func seek(t *testing.T, b Backend) {
	l := b.Log(t, "events")
	start := time.Now()
	fill(t, l, 30)
	records, _ := items(t, l, 1)
	for _, r := range records {
		at, err := l.Seek(t.Context(), r.Time)
		require.NoError(t, err)
		require.LessOrEqual(t, at, r.Pos)
		require.Equal(t, r.Time, records[at-1].Time)
	}
	at, err := l.Seek(t.Context(), start.Add(-time.Hour))
	require.NoError(t, err)
	assert.Equal(t, store.Pos(1), at)
	at, err = l.Seek(t.Context(), time.Now().Add(time.Hour))
	require.NoError(t, err)
	assert.Equal(t, store.Pos(31), at)
}

func kill(t *testing.T, b Backend) {
	l := b.Log(t, "events")
	before, err := l.State(t.Context())
	require.NoError(t, err)
	for i := range 5 {
		for range 20 {
			_, err := l.Append(t.Context(), draft("before the kill"))
			require.NoError(t, err)
		}
		b.Kill(t)
		l = b.Log(t, "events")
		records, gaps := items(t, l, 1)
		assert.Empty(t, gaps)
		require.Len(t, records, 20*(i+1))
	}
	after, err := l.State(t.Context())
	require.NoError(t, err)
	assert.Equal(t, before.ID, after.ID)
	first, err := l.Append(t.Context(), draft("after it"))
	require.NoError(t, err)
	assert.Equal(t, store.Pos(101), first)
}

func apart(t *testing.T, b Backend) {
	one, two := b.Log(t, "one"), b.Log(t, "two")
	_, err := one.Append(t.Context(), draft("1"))
	require.NoError(t, err)
	first, err := two.Append(t.Context(), draft("2"))
	require.NoError(t, err)
	assert.Equal(t, store.Pos(1), first)
	a, err := one.State(t.Context())
	require.NoError(t, err)
	c, err := two.State(t.Context())
	require.NoError(t, err)
	assert.NotEqual(t, a.ID, c.ID)
}
