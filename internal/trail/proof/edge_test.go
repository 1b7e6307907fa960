package proof_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/auditrelay/auditrelay/internal/trail/proof"
)

// The edge is held against package tlog's own stored hashes.
func TestAnEdgeHasTheRootOfItsTree(t *testing.T) {
	t.Parallel()
	var edge proof.Edge
	var stored []tlog.Hash
	read := tlog.HashReaderFunc(func(at []int64) (out []tlog.Hash, _ error) {
		for _, i := range at {
			out = append(out, stored[i])
		}
		return out, nil
	})
	for n := int64(0); n < 600; n++ {
		want, err := tlog.TreeHash(n, read)
		require.NoError(t, err)
		assert.Equal(t, want, edge.Root(), "%d leaves", n)
		assert.Equal(t, n, edge.Len())
		same, ok := proof.EdgeOf(n, edge.Full())
		assert.True(t, ok)
		assert.Equal(t, want, same.Root())
		_, ok = proof.EdgeOf(n, append(edge.With().Full(), tlog.Hash{}))
		assert.False(t, ok, "%d leaves with one subtree more", n)
		edge.With(tlog.Hash{1}, tlog.Hash{2}, tlog.Hash{3})
		assert.Equal(t, want, edge.Root(), "a copy has changed what it is of")
		record := []byte{byte(n), byte(n >> 8)}
		more, err := tlog.StoredHashes(n, record, read)
		require.NoError(t, err)
		stored = append(stored, more...)
		edge.Grow(tlog.RecordHash(record), func(height int, index int64, h tlog.Hash) {
			assert.Equal(t, stored[tlog.StoredHashIndex(height, index)], h, "leaf %d, height %d", n, height)
		})
	}
}

func TestPartialTilesGiveTheEdge(t *testing.T) {
	t.Parallel()
	var edge proof.Edge
	var levels [3][]tlog.Hash
	for n := range int64(70_000) {
		edge.Grow(tlog.RecordHash([]byte{byte(n), byte(n >> 8), byte(n >> 16)}), func(height int, _ int64, h tlog.Hash) {
			if level := height / proof.TileHeight; height%proof.TileHeight == 0 {
				levels[level] = append(levels[level][:len(levels[level])%proof.TileWidth], h)
			}
		})
		if n < 600 || n > 65_500 && n < 66_000 {
			made := proof.EdgeOfTiles([][]tlog.Hash{
				levels[0][:(n+1)%proof.TileWidth], levels[1][:(n+1)>>8%proof.TileWidth], levels[2][:(n+1)>>16%proof.TileWidth],
			})
			require.Equal(t, edge.Root(), made.Root(), "%d leaves", n+1)
			require.Equal(t, edge.Len(), made.Len())
		}
	}
}
