package history

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestPositionsMayBeAnsweredOutOfOrder(t *testing.T) {
	t.Parallel()
	var h History
	h.Begin(3000)
	for _, seq := range []uint64{5000, 5002, 5001, 5004, 5003} {
		assert.True(t, h.Given(Place{seq, seq}), "%d", seq)
		assert.True(t, h.Given(Place{seq, seq}), "%d, as a source read it first", seq)
	}
	for _, seq := range []uint64{5004, 5001, 3500, 3000} {
		assert.False(t, h.Given(Place{seq, 1}), "%d", seq)
		assert.False(t, h.Given(Place{5005, 1}), "nothing is known for certain then")
		h.Settle()
	}
	assert.True(t, h.Given(Place{5005, 1}))
}

func open(t *testing.T, path string) *History {
	t.Helper()
	h, err := Open(path, func(err error) { assert.NoError(t, err) })
	require.NoError(t, err)
	return h
}

// A restart loses no place, except a damaged one, and those lost by the stream.
func TestTheFileKeepsTheHistory(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "history")
	h := open(t, path)
	for seq := range uint64(3000) {
		require.True(t, h.Given(Place{seq + 1, seq * seq}))
	}
	known := h.Places(3000)
	require.Len(t, known, 1024+1, "the newest 1,024, and position 1,024")
	require.NoError(t, h.Close())

	h = open(t, path)
	assert.True(t, slices.Equal(known, h.Places(3000)))
	require.NoError(t, h.Reset(2990, 2995))
	for range 2 {
		assert.True(t, slices.Equal(known[:len(known)-10], h.Places(3000)))
		newest, doubt := h.Reach()
		assert.Equal(t, uint64(2990), newest)
		assert.False(t, doubt)
		require.NoError(t, h.Close())
		h = open(t, path)
	}
	require.NoError(t, h.Close())

	data, err := os.ReadFile(path)
	require.NoError(t, err)
	data[(2990%ringSize)*placeSize+9] ^= 1
	require.NoError(t, os.WriteFile(path, data, 0o600))
	h = open(t, path)
	assert.True(t, slices.Equal(known[:len(known)-11], h.Places(3000)))
	require.NoError(t, h.Close())
}

// After two turns, records stayed up to the lower position.
func TestTurnsOfTheStream(t *testing.T) {
	t.Parallel()
	var h History
	h.Turn(70)
	h.Turn(90)
	turns, stays := h.Turns(0)
	assert.Equal(t, 2, turns)
	assert.Equal(t, uint64(70), stays)
	_, stays = h.Turns(1)
	assert.Equal(t, uint64(90), stays)
}
