package tiles

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/auditrelay/auditrelay/internal/testbed/waiting"
	"github.com/auditrelay/auditrelay/internal/trail/audit"
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
		var offered atomic.Pointer[audit.Offer]
		other.options.Cosign = func(_ context.Context, o audit.Offer) ([]byte, error) { offered.Store(&o); return nil, nil }
		other.store = Open(t.TempDir())
		if other.options.Files = nil; withTiles {
			other.options.Files = NewCopies(other.store)
		}
		other.open()
		other.sign() // what names the damage
		other.run()
		size := other.trail.Size()
		waiting.Until(t, func() bool { o := offered.Load(); return o != nil && o.Size == size }, "nothing was offered")
		o := offered.Load()
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
