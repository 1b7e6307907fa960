package storetest

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/store"
)

// test is a test of the suite.
type test struct {
	name string
	run  func(t *testing.T, b Backend)
}

// races are about several users of one store.
func races() []test {
	return []test{
		{"OneOfSeveralAppendsAtAnEndWins", oneAppendWins},
		{"OneOfSeveralPutsWins", onePutWins},
		{"ManyReadersFollow", manyFollow},
		{"ASoundLogHasNoGaps", soundLog},
	}
}

// oneAppendWins has several senders append at the end that they know.
func oneAppendWins(t *testing.T, b Backend) {
	l := b.Log(t, "trail")
	for round := range store.Pos(10) {
		var won atomic.Int32
		var senders sync.WaitGroup
		for range 5 {
			senders.Go(func() {
				first, err := l.AppendAt(t.Context(), round, draft(fmt.Sprint(round)))
				if err != nil {
					assert.ErrorIs(t, err, store.ErrConflict)
					return
				}
				assert.Equal(t, round+1, first)
				won.Add(1)
			})
		}
		senders.Wait()
		require.EqualValues(t, 1, won.Load())
	}
	records, gaps := items(t, l, 1)
	assert.Empty(t, gaps)
	assert.Len(t, records, 10)
}

// onePutWins has several writers replace the value that they know.
func onePutWins(t *testing.T, b Backend) {
	rev := uint64(0)
	for range 10 {
		var won atomic.Uint64
		var writers sync.WaitGroup
		for i := range 5 {
			writers.Go(func() {
				got, err := b.Table().Put(t.Context(), "k", fmt.Append(nil, i), store.If{Key: "k", Rev: rev})
				if err != nil {
					assert.ErrorIs(t, err, store.ErrConflict)
					return
				}
				assert.True(t, won.CompareAndSwap(0, got), "only one of them wins")
			})
		}
		writers.Wait()
		require.Greater(t, won.Load(), rev)
		rev = won.Load()
	}
}

// manyFollow has readers begin at different places while several senders append.
func manyFollow(t *testing.T, b Backend) {
	l := b.Log(t, "events")
	const senders, each = 4, 25
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var reading, sending sync.WaitGroup
	read := make([]map[store.Pos]string, 6)
	for i := range read {
		read[i] = map[store.Pos]string{}
		reading.Go(func() {
			next := store.Pos(1 + 10*i)
			for item, err := range l.Read(ctx, next, true) {
				if !assert.NoError(t, err) || !assert.NotNil(t, item.Record) || !assert.Equal(t, next, item.Record.Pos) {
					return
				}
				read[i][next] = string(item.Record.Data)
				if next++; next > senders*each {
					return
				}
			}
		})
	}
	for sender := range senders {
		sending.Go(func() {
			for i := range each {
				_, err := l.Append(t.Context(), draft(fmt.Sprintf("%d/%d", sender, i)))
				assert.NoError(t, err)
			}
		})
	}
	sending.Wait()
	reading.Wait()
	for i := range read {
		for pos, text := range read[i] {
			assert.Equal(t, read[0][pos], text)
		}
		assert.Len(t, read[i], senders*each-10*i)
	}
}

// soundLog scrubs a log without damage, before and after a trim.
func soundLog(t *testing.T, b Backend) {
	l := b.Log(t, "events")
	fill(t, l, 40)
	for _, before := range []store.Pos{1, 20, 41, 1000} {
		require.NoError(t, l.Trim(t.Context(), before))
		for gap, err := range l.Scrub(t.Context()) {
			require.NoError(t, err)
			assert.Fail(t, "a sound log has a gap", "%+v", gap)
		}
	}
	state, err := l.State(t.Context())
	require.NoError(t, err)
	assert.Equal(t, store.Pos(40), state.End)
	first, err := l.AppendAt(t.Context(), 40, draft("after all that"))
	require.NoError(t, err)
	assert.Equal(t, store.Pos(41), first)
	b.Kill(t)
	records, _ := items(t, b.Log(t, "events"), 41)
	assert.Len(t, records, 1)
}

func list(t *testing.T, b Backend) {
	table := b.Table()
	all, err := table.List(t.Context(), "a/")
	require.NoError(t, err)
	assert.Empty(t, all)
	for _, key := range []string{"a/2", "a", "a/1", "b/1", "a/3"} {
		_, err := table.Put(t.Context(), key, []byte("of "+key), store.If{})
		require.NoError(t, err)
	}
	require.NoError(t, table.PutLazy(t.Context(), "a/0", []byte{}, store.If{}))
	_, err = table.Put(t.Context(), "a/2", nil, store.If{})
	require.NoError(t, err)
	for range 2 {
		all, err = b.Table().List(t.Context(), "a/")
		require.NoError(t, err)
		for i := range all {
			all[i].Rev = 0
		}
		assert.Equal(t, []store.Value{
			{Key: "a/0", Data: []byte{}}, {Key: "a/1", Data: []byte("of a/1")}, {Key: "a/3", Data: []byte("of a/3")},
		}, all)
		b.Kill(t)
	}
}
