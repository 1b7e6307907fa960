package proof_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/auditrelay/auditrelay/internal/proof"
)

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
	for n := int64(0); n < 70; n++ {
		want, err := tlog.TreeHash(n, read)
		require.NoError(t, err)
		assert.Equal(t, want, edge.Root(), "%d leaves", n)
		assert.Equal(t, n, edge.Len())
		more, err := tlog.StoredHashes(n, []byte{byte(n)}, read)
		require.NoError(t, err)
		stored = append(stored, more...)
		edge.Add(tlog.RecordHash([]byte{byte(n)}))
	}
}
