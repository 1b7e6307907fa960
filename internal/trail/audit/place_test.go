package audit

import (
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/mod/sumdb/tlog"
)

// requirePlaces holds the places of entries, asked for in that order, against trees over
// their leaves.
func requirePlaces(t *testing.T, trail *Trail, order []int64, base int64, leaves []tlog.Hash) {
	t.Helper()
	for _, index := range order {
		e, err := trail.Get(t.Context(), index)
		require.NoError(t, err)
		p, err := trail.Place(t.Context(), e)
		require.NoError(t, err)
		want := tree{}.With(leaves[:index-base+1]...)
		require.Equal(t, want.Len(), p.Size, "entry %d", index)
		require.Equal(t, want.Root().String(), p.Root.String(), "entry %d", index)
		require.Equal(t, leaves[index-base], p.Leaf)
		require.Equal(t, index, p.Index)
	}
}

func upTo(n int) (order []int64) {
	for i := range n {
		order = append(order, int64(i))
	}
	return order
}

func leavesOf(t *testing.T, trail *Trail, from int64) (leaves []tlog.Hash) {
	t.Helper()
	require.NoError(t, trail.Each(t.Context(), from, func(e Recorded) error {
		leaves = append(leaves, e.Leaf)
		return nil
	}))
	return leaves
}

// The tree up to an entry is the same in order, out of order, after the newest checkpoint,
// and after a restart; to find it reads nothing.
func TestPlaces(t *testing.T) {
	t.Parallel()
	o := testOptions(t)
	o.SignEvery = time.Hour
	st, _ := startStore(t, t.TempDir())
	trail := openTrail(t, st, o)
	for i := range 20 {
		appendEntries(t, trail, 5*i, 5*i+5)
		require.NoError(t, trail.Sign(t.Context()))
	}
	appendEntries(t, trail, 100, 107)
	leaves := leavesOf(t, trail, 0)
	requirePlaces(t, trail, upTo(107), 0, leaves)
	mixed := upTo(107)
	rand.Shuffle(len(mixed), func(i, j int) { mixed[i], mixed[j] = mixed[j], mixed[i] })
	requirePlaces(t, trail, mixed[:30], 0, leaves)

	reads := func() int { return st.log(EntriesLog).count() + st.log(CheckpointsLog).count() }
	for _, index := range []int64{2, 53, 105} {
		e, err := trail.Get(t.Context(), index)
		require.NoError(t, err)
		before := reads()
		_, err = trail.Place(t.Context(), e)
		require.NoError(t, err)
		assert.Equal(t, before, reads())
	}
	require.NoError(t, trail.Close(t.Context()))
	requirePlaces(t, openTrail(t, st, o), []int64{106, 3, 4, 99, 100}, 0, leaves)
}

// Each generation has a tree of its own; an unsound entry has no place in any.
func TestPlacesInADamagedTrail(t *testing.T) {
	t.Parallel()
	d := newDamageable(t)
	alter(d.entries[7])
	require.NoError(t, os.Remove(d.o.KeyFile))
	_, err := generateKey(d.o.KeyFile, "example.com/other")
	require.NoError(t, err)
	trail, _ := d.reopen(t, d.entries, d.checkpoints, 13)
	altered, err := trail.Get(t.Context(), 7)
	require.NoError(t, err)
	p, err := trail.Place(t.Context(), altered)
	require.NoError(t, err)
	require.Equal(t, Place{Index: 7, Origin: "example.com/trail", Leaf: altered.Leaf}, p)

	last, err := trail.Get(t.Context(), 19)
	require.NoError(t, err)
	p, err = trail.Place(t.Context(), last)
	require.NoError(t, err)
	require.Equal(t, d.root.String(), p.Root.String(), "the root that was signed, past an altered and a lost entry")
	require.EqualValues(t, 20, p.Size)

	appendAt(t, trail, 3)
	first, err := trail.Get(t.Context(), 20)
	require.NoError(t, err)
	p, err = trail.Place(t.Context(), first)
	require.NoError(t, err)
	require.Equal(t, "example.com/other/from-20", p.Origin)
	require.EqualValues(t, 1, p.Size)
	requirePlaces(t, trail, []int64{20, 22, 21}, 20, leavesOf(t, trail, 20))
}

func appendAt(t *testing.T, trail *Trail, n int) {
	t.Helper()
	for i := range n {
		_, err := trail.Append(t.Context(), testEntry(i))
		require.NoError(t, err)
	}
}

// Damaged checkpoints hide the tree of no entry that is there itself.
func TestPlacesWithoutCheckpoints(t *testing.T) {
	t.Parallel()
	d := newDamageable(t)
	trail, st := d.reopen(t, d.entries, d.checkpoints, 0)
	leaves := leavesOf(t, trail, 0)
	require.NoError(t, trail.Close(t.Context()))
	checkpoints := records(t, st, CheckpointsLog)
	checkpoints[4].Data = []byte("{}")
	replace(t, st, CheckpointsLog, copyAll(checkpoints), 8)
	trail = openTrail(t, st, d.o)
	for index := range int64(20) {
		e, err := trail.Get(t.Context(), index)
		require.NoError(t, err)
		trail.known.base = -1 // as after a restart
		p, err := trail.Place(t.Context(), e)
		require.NoError(t, err)
		require.NotNil(t, p.Root)
		require.Equal(t, tree{}.With(leaves[:index+1]...).Root().String(), p.Root.String())
	}
}
