package audit

import (
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/mod/sumdb/tlog"
)

// Two entries with the same content have different leaves: whoever does not have the salt of one
// cannot tell what stands in it.
func TestALeafConfirmsNoGuess(t *testing.T) {
	t.Parallel()
	st, _ := startStore(t, t.TempDir())
	trail := openTrail(t, st, testOptions(t))
	for range 2 {
		_, err := trail.Append(t.Context(), testEntry(1))
		require.NoError(t, err)
	}
	guess, err := encodeRecord(testEntry(1))
	require.NoError(t, err)
	seen := map[tlog.Hash]bool{leafHash(guess): true}
	for i := range int64(2) {
		e, err := trail.Get(t.Context(), i)
		require.NoError(t, err)
		require.False(t, seen[e.Leaf])
		require.Len(t, e.Salt, 26)
		seen[e.Leaf] = true
	}
}
