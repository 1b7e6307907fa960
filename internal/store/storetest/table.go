package storetest

import (
	"context"
	"fmt"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/store"
)

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
