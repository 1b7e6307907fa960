package tiles

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/auditrelay/auditrelay/internal/testbed/waiting"
	"github.com/auditrelay/auditrelay/internal/trail/audit"
	"github.com/auditrelay/auditrelay/internal/trail/verify"
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

// A relay that was thought dead appends and signs after another one has read the trail. The files of the
// other one get each of its checkpoints, though that one has appended nothing yet.
func TestTheFilesHaveWhatAnotherRelaySigns(t *testing.T) {
	t.Parallel()
	h := newHouse(t, 3)
	old, err := audit.Open(t.Context(), h.kept, h.options)
	require.NoError(t, err)
	defer func() { require.NoError(t, old.Close(t.Context())) }()
	h.run()
	for i := 3; i < 6; i++ {
		_, err := old.Append(t.Context(), entry(i))
		require.NoError(t, err)
		require.NoError(t, old.Sign(t.Context()))
	}
	h.run()
	h.requireWhole(0, 6)
	h.add(entry(6))
	h.run()
	h.requireWhole(0, 7)
	report, err := verify.Files(t.Context(), h.store.Log(0).dir, h.options.Origin, h.key(0), h.store.Log(0).archivedEnd, 0)
	require.NoError(t, err)
	require.Empty(t, report, "the history has each checkpoint")
}
