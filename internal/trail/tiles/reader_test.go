package tiles

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/auditrelay/auditrelay/internal/testbed/waiting"
)

// A witness gets its consistency proof from the tiles, where kept checkpoints are lost too, and as
// soon as the tiles are there.
func TestConsistencyIsProvenFromTheTiles(t *testing.T) {
	t.Parallel()
	h := newHouse(t, 250)
	roots := map[int64]tlog.Hash{}
	for n := 250; n < 280; n += 10 {
		g := h.trail.Generations()[0]
		roots[g.Size] = g.Root
		h.publish(n, n+10)
	}
	other := h.harmed(harm{checkpoints: []int{2, 3}})
	other.store = Open(t.TempDir())
	other.options.Files = other.store
	other.open()
	waiting.Until(t, func() bool { return other.trail.Size() == 281 }, "the damage is not named")
	require.NoError(t, other.trail.Sign(t.Context()))
	o := <-other.trail.Offers()
	require.Equal(t, other.trail.Size(), o.Size)
	soon, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	_, err := o.Prove(soon, 260)
	require.ErrorContains(t, err, "prove consistency of 281 with 260 entries")
	cancel()
	proven := make(chan error)
	go func() { _, err := o.Prove(t.Context(), 260); proven <- err }()
	other.run()
	require.NoError(t, <-proven)
	for old, root := range roots {
		proof, err := o.Prove(t.Context(), old)
		require.NoError(t, err, old)
		require.NoError(t, tlog.CheckTree(proof, o.Size, o.Root, old, root))
	}
	for _, old := range []int64{0, 281, 300} {
		proof, err := o.Prove(t.Context(), old)
		require.NoError(t, err)
		require.Empty(t, proof)
	}
}
