package audit

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTailGoesOnWithNewEntries(t *testing.T) {
	t.Parallel()
	st, _ := startStore(t, t.TempDir())
	trail := openTrail(t, st, testOptions(t))
	appendEntries(t, trail, 0, 5)

	var got []int64
	stop := errors.New("enough")
	caught := 0
	err := trail.Tail(t.Context(), 2, func(e Recorded) error {
		got = append(got, e.Index)
		return nil
	}, func(end int64) error {
		require.EqualValues(t, got[len(got)-1]+1, end)
		if caught++; caught == 1 {
			require.Equal(t, []int64{2, 3, 4}, got, "all that is there comes before")
			appendEntries(t, trail, 5, 7)
			return nil
		}
		if len(got) < 5 {
			return nil
		}
		return stop
	})
	require.ErrorIs(t, err, stop)
	require.Equal(t, []int64{2, 3, 4, 5, 6}, got)

	got = nil
	require.NoError(t, trail.Each(t.Context(), 7, func(e Recorded) error { got = append(got, e.Index); return nil }))
	require.Empty(t, got, "behind the end there is nothing to wait for")
}

func TestGetHasTheLeafOfTheTree(t *testing.T) {
	t.Parallel()
	st, _ := startStore(t, t.TempDir())
	trail := openTrail(t, st, testOptions(t))
	appendEntries(t, trail, 0, 3)
	x, err := trail.examine(t.Context())
	require.NoError(t, err)

	e, err := trail.Get(t.Context(), 1)
	require.NoError(t, err)
	require.EqualValues(t, 1, e.Index)
	require.Equal(t, x.leaves[1], e.Leaf)
	require.JSONEq(t, `{"value":1}`, string(e.After))
	for _, index := range []int64{-1, 3} {
		_, err = trail.Get(t.Context(), index)
		require.ErrorIs(t, err, ErrMissing)
	}

	offline, err := OpenReader(t.Context(), st)
	require.NoError(t, err)
	same, err := offline.Get(t.Context(), 1)
	require.NoError(t, err)
	require.Equal(t, e, same)
	_, err = offline.Get(t.Context(), 3)
	require.ErrorIs(t, err, ErrMissing)
	var all []int64
	enough := errors.New("enough")
	require.ErrorIs(t, offline.Tail(t.Context(), 1, func(e Recorded) error {
		require.Equal(t, x.leaves[e.Index], e.Leaf)
		all = append(all, e.Index)
		return nil
	}, func(int64) error { return enough }), enough)
	require.Equal(t, []int64{1, 2}, all)
}
