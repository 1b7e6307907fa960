package journal

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestReserveHoldsToAQuota(t *testing.T) {
	t.Parallel()
	b := newBudget(1<<30, 0, false)
	b.ratio = 1
	reserved, err := b.reserve("a", 60, 100)
	require.NoError(t, err)
	assert.EqualValues(t, 60, reserved)
	_, err = b.reserve("a", 60, 100)
	require.ErrorIs(t, err, ErrShare)
	_, err = b.reserve("b", 60, 100)
	require.NoError(t, err)
	b.giveBack("a", reserved)
	_, err = b.reserve("a", 60, 100)
	require.NoError(t, err)
}

func TestBytesAreGivenBackByCells(t *testing.T) {
	t.Parallel()
	b := newBudget(256*1000, 0, false) // a cell of 1000 bytes
	for record := range uint64(1000) {
		b.add(record+1, 100, []sourceBytes{{"a", 300}, {"b", 100}})
	}
	assert.LessOrEqual(t, len(b.cells), 101)
	assert.Equal(t, map[string]int64{"a": 75_000, "b": 25_000}, b.bySource())
	b.look(500, 100_000)
	assert.InDelta(t, 37_500, b.bySource()["a"], 1000)
	b.look(1000, 100_000)
	assert.Empty(t, b.bySource())
	assert.Zero(t, b.all)
}

// Records go from the mark on, down to the goal or as far as an append needs.
func TestSurplus(t *testing.T) {
	t.Parallel()
	b := newBudget(1000, 0, false) // the mark is at 750, the goal at 625
	for _, c := range []struct {
		used, need int64
		gone       uint64
	}{
		{750, 0, 0},
		{750, 250, 0},
		{760, 0, 14},
		{750, 260, 13},
		{750, 500, 25},
		{100, 950, 5},
	} {
		assert.Equal(t, c.gone, b.surplus(c.used, uint64(c.used)/10, c.need), "%d bytes in records of 10, %d more", c.used, c.need)
	}
}

// A source whose events a sink refuses may have far more dead letters than the budget has
// bytes: small events are stored together, and letters one by one.
func TestDeadLettersCountAgainstTheirOwnSourceAlone(t *testing.T) {
	t.Parallel()
	b := newBudget(1000, 0, false)
	b.ratio = 1
	b.add(1, 100, []sourceBytes{{"a", 100}})
	b.look(1, 100) // delivered
	for _, letters := range []int64{900, 50_000} {
		b.holdBeyond(map[string]int64{"a": letters})
		_, err := b.reserve("a", 1, 0)
		require.ErrorIs(t, err, ErrShare)
		reserved, err := b.reserve("b", 500, 0)
		require.NoError(t, err)
		b.giveBack("b", reserved)
		assert.EqualValues(t, 0, b.undelivered())
		assert.Equal(t, map[string]int64{"a": letters}, b.bySource())
	}
	b.holdBeyond(map[string]int64{"a": 700})
	_, err := b.reserve("a", 1, 0)
	require.NoError(t, err)
}
