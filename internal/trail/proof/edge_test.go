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
		edge.Add(tlog.RecordHash(record))
	}
}
