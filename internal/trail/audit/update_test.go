package audit

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestUpdateComparesAgainAfterAnother(t *testing.T) {
	t.Parallel()
	st, _ := startStore(t, t.TempDir())
	trail := openTrail(t, st, testOptions(t))
	e := testEntry(0)
	update := func(next func(last Entry, found bool) (*Entry, error)) (*Entry, error) {
		return Update(t.Context(), trail, e.Project, e.Environment, e.Subject, next)
	}

	first, err := update(func(_ Entry, found bool) (*Entry, error) {
		assert.False(t, found)
		return &e, nil
	})
	require.NoError(t, err)
	assert.EqualValues(t, 0, first.Index)

	var seen []int64
	second, err := update(func(last Entry, _ bool) (*Entry, error) {
		if seen = append(seen, last.Index); len(seen) == 1 { // another is quicker
			_, err := trail.Append(context.WithoutCancel(t.Context()), testEntry(3))
			require.NoError(t, err)
		}
		mine := testEntry(6)
		return &mine, nil
	})
	require.NoError(t, err)
	assert.Equal(t, []int64{0, 1}, seen, "it is held against the entry of the other")
	assert.EqualValues(t, 2, second.Index)

	none, err := update(func(last Entry, _ bool) (*Entry, error) {
		assert.JSONEq(t, `{"value":6}`, string(last.After))
		return nil, nil //nolint:nilnil // nothing is due
	})
	require.NoError(t, err)
	assert.Nil(t, none)
	broken := errors.New("broken")
	_, err = update(func(Entry, bool) (*Entry, error) { return nil, broken })
	require.ErrorIs(t, err, broken)
	assert.EqualValues(t, 3, trail.Size())
}

func TestUpdateGivesUp(t *testing.T) {
	t.Parallel()
	st, _ := startStore(t, t.TempDir())
	trail := openTrail(t, st, testOptions(t))
	e, calls := testEntry(0), 0
	_, err := Update(t.Context(), trail, e.Project, e.Environment, e.Subject, func(Entry, bool) (*Entry, error) {
		calls++
		_, err := trail.Append(t.Context(), e)
		require.NoError(t, err)
		return &e, nil
	})
	require.ErrorIs(t, err, ErrConflict)
	assert.Equal(t, updateAttempts, calls)
	assert.EqualValues(t, updateAttempts, trail.Size(), "only those of the other")
}

// The entries of a resource are found from the newest one on, those without states too.
func TestBackwards(t *testing.T) {
	t.Parallel()
	st, _ := startStore(t, t.TempDir())
	trail := openTrail(t, st, testOptions(t))
	e := testEntry(0)
	e.Before, e.After = nil, nil
	for _, kind := range []string{"a", "b", "c", "d"} {
		e.Type = kind
		_, err := Update(t.Context(), trail, e.Project, e.Environment, e.Subject, func(Entry, bool) (*Entry, error) { mine := e; return &mine, nil })
		require.NoError(t, err)
		other := testEntry(1)
		other.Subject = "another"
		_, err = trail.Append(t.Context(), other)
		require.NoError(t, err)
	}
	read := func(log Log, enough string) (kinds string) {
		err := Backwards(t.Context(), log, e.Project, e.Environment, e.Subject, func(e Entry) bool {
			kinds += e.Type
			return e.Type != enough
		})
		require.NoError(t, err)
		return kinds
	}
	assert.Equal(t, "dcba", read(trail, ""))
	assert.Equal(t, "dc", read(trail, "c"))
	require.NoError(t, Backwards(t.Context(), trail, e.Project, e.Environment, "none", func(Entry) bool { t.Error("there is none"); return true }))
	assert.Equal(t, "dc", read(lossy{trail, 2}, ""), "what is before a lost entry is not known")
}

// lossy is a trail that lost an entry.
type lossy struct {
	*Trail
	lost int64
}

func (l lossy) Get(ctx context.Context, index int64) (Recorded, error) {
	if index == l.lost {
		return Recorded{}, ErrMissing
	}
	return l.Trail.Get(ctx, index)
}
