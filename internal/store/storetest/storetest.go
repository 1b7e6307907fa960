// Package storetest is the contract suite of package store: what every backend has to show.
// Crashes, damage and full disks are each backend's own, since they happen to its files.
package storetest

import (
	"bytes"
	"context"
	"fmt"
	"strconv"
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

func conditions(t *testing.T, b Backend) {
	table := b.Table()
	value, err := table.Get(t.Context(), "k")
	require.NoError(t, err)
	assert.Equal(t, store.Value{Key: "k"}, value)
	first, err := table.Put(t.Context(), "k", []byte("one"), store.If{Key: "k"})
	require.NoError(t, err)
	_, err = table.Put(t.Context(), "k", []byte("another one"), store.If{Key: "k"})
	require.ErrorIs(t, err, store.ErrConflict)
	second, err := table.Put(t.Context(), "k", []byte("two"), store.If{Key: "k", Rev: first})
	require.NoError(t, err)
	assert.Greater(t, second, first)
	third, err := table.Put(t.Context(), "k", nil, store.If{Key: "k", Rev: second})
	require.NoError(t, err)
	value, err = table.Get(t.Context(), "k")
	require.NoError(t, err)
	assert.Equal(t, store.Value{Key: "k", Rev: third}, value, "a tombstone has a revision and no data")
	_, err = table.Put(t.Context(), "k", []byte("as if nothing had been there"), store.If{Key: "k"})
	require.ErrorIs(t, err, store.ErrConflict)
	fourth, err := table.Put(t.Context(), "k", []byte{}, store.If{})
	require.NoError(t, err)
	value, err = table.Get(t.Context(), "k")
	require.NoError(t, err)
	assert.Equal(t, store.Value{Key: "k", Rev: fourth, Data: []byte{}}, value, "an empty value is no tombstone")
}

func guards(t *testing.T, b Backend) {
	table := b.Table()
	epoch, err := table.Put(t.Context(), "epoch", []byte("a"), store.If{Key: "epoch"})
	require.NoError(t, err)
	held := store.If{Key: "epoch", Rev: epoch}
	require.NoError(t, table.PutLazy(t.Context(), "position", []byte("1"), held))
	require.NoError(t, table.PutLazy(t.Context(), "position", []byte("2"), held))
	_, err = table.Put(t.Context(), "epoch", []byte("b"), held)
	require.NoError(t, err)
	require.ErrorIs(t, table.PutLazy(t.Context(), "position", []byte("3"), held), store.ErrConflict)
	_, err = table.Put(t.Context(), "other", []byte("3"), held)
	require.ErrorIs(t, err, store.ErrConflict)
	value, err := table.Get(t.Context(), "position")
	require.NoError(t, err)
	assert.Equal(t, "2", string(value.Data))
}

func valuesSurvive(t *testing.T, b Backend) {
	revs := map[string]uint64{}
	for i := range 40 {
		key, data := fmt.Sprintf("durable/%d", i%7), fmt.Appendf(nil, "%d", i)
		rev, err := b.Table().Put(t.Context(), key, data, store.If{Key: key, Rev: revs[key]})
		require.NoError(t, err)
		revs[key] = rev
		require.NoError(t, b.Table().PutLazy(t.Context(), fmt.Sprintf("lazy/%d", i%7), data, store.If{}))
	}
	_, err := b.Table().Put(t.Context(), "durable/0", nil, store.If{})
	require.NoError(t, err)
	b.Kill(t)
	for i := 33; i < 40; i++ {
		want := fmt.Sprint(i)
		if i == 35 {
			want = "" // 35 % 7 == 0
		}
		durable, err := b.Table().Get(t.Context(), fmt.Sprintf("durable/%d", i%7))
		require.NoError(t, err)
		assert.Equal(t, want, string(durable.Data))
		lazy, err := b.Table().Get(t.Context(), fmt.Sprintf("lazy/%d", i%7))
		require.NoError(t, err)
		if _, loses := b.(interface{ LosesLazyValues() }); !loses {
			assert.Equal(t, fmt.Sprint(i), string(lazy.Data))
		} else if n, err := strconv.Atoi(string(lazy.Data)); len(lazy.Data) > 0 {
			assert.True(t, err == nil && n%7 == i%7 && n <= i, "it is a value that was put: %s", lazy.Data)
		}
	}
	require.NoError(t, b.Table().Sync(t.Context()))
}

func watch(t *testing.T, b Backend) {
	table := b.Table()
	for _, key := range []string{"a/1", "a/2", "b/1"} {
		_, err := table.Put(t.Context(), key, []byte(key), store.If{})
		require.NoError(t, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	seen := make(chan store.Value)
	go func() {
		defer close(seen)
		for v, err := range table.Watch(ctx, "a/") {
			if err != nil {
				return
			}
			seen <- v
		}
	}()
	first, second := <-seen, <-seen
	assert.ElementsMatch(t, []string{"a/1", "a/2"}, []string{first.Key, second.Key})
	_, err := table.Put(t.Context(), "b/1", []byte("of another prefix"), store.If{})
	require.NoError(t, err)
	rev, err := table.Put(t.Context(), "a/3", []byte("new"), store.If{})
	require.NoError(t, err)
	assert.Equal(t, store.Value{Key: "a/3", Rev: rev, Data: []byte("new")}, <-seen)
	rev, err = table.Put(t.Context(), "a/1", nil, store.If{})
	require.NoError(t, err)
	assert.Equal(t, store.Value{Key: "a/1", Rev: rev}, <-seen, "a removed one is told")
	cancel()
	for range seen {
		t.Error("nothing more was written")
	}
}
