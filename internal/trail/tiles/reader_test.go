package tiles

import (
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/auditrelay/auditrelay/internal/testbed/waiting"
)

// Where kept checkpoints are lost, a witness gets its consistency proof from the tiles.
func TestConsistencyIsProvenFromTheTiles(t *testing.T) {
	t.Parallel()
	h := newHouse(t, 250)
	roots := map[int64]tlog.Hash{}
	for n := 250; n < 280; n += 10 {
		g := h.trail.Generations()[0]
		roots[g.Size] = g.Root
		h.publish(n, n+10)
	}
	for _, withTiles := range []bool{false, true} {
		other := h.harmed(harm{checkpoints: []int{2, 3}})
		other.store = Open(t.TempDir())
		if other.options.Files = nil; withTiles {
			other.options.Files = NewCopies(other.store)
		}
		other.open()
		waiting.Until(t, func() bool { return other.trail.Size() == 281 }, "the damage is not named")
		require.NoError(t, other.trail.Sign(t.Context()))
		other.run()
		o := <-other.trail.Offers()
		require.Equal(t, other.trail.Size(), o.Size)
		for old, root := range roots {
			proof, err := o.Prove(t.Context(), old)
			if !withTiles && old == 260 { // the tree up to it is in no checkpoint any more
				require.ErrorContains(t, err, "no sound checkpoint is near")
				continue
			}
			require.NoError(t, err, old)
			require.NoError(t, tlog.CheckTree(proof, o.Size, o.Root, old, root))
		}
	}
}
