package tiles

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/store"
	"github.com/auditrelay/auditrelay/internal/testbed/damage"
	"github.com/auditrelay/auditrelay/internal/trail/audit"
	"github.com/auditrelay/auditrelay/internal/trail/proof"
)

// checkpoints is the number of checkpoints that the trail has kept.
func (h *house) checkpoints() int {
	h.tb.Helper()
	log, err := h.kept.Log(h.tb.Context(), audit.CheckpointsLog, store.Options{})
	require.NoError(h.tb, err)
	state, err := log.State(h.tb.Context())
	require.NoError(h.tb, err)
	return int(state.End)
}

// published are the numbers of the checkpoints in the histories of all logs.
func (h *house) published() (seqs []int) {
	h.tb.Helper()
	h.store.History(func(p proof.Line) { seqs = append(seqs, int(p.Seq)) })
	return seqs
}

// numbers are those from 1 to n.
func numbers(n int) (all []int) {
	for i := range n {
		all = append(all, i+1)
	}
	return all
}

// A history that lacks checkpoints, as one of a version that passed over those of other relays, or one
// whose last line a crash has left out before the next generation began, is completed at the next start.
func TestAHistoryWithHolesIsCompleted(t *testing.T) {
	t.Parallel()
	h := newHouse(t, 10)
	for i := range 4 {
		h.add(entry(10 + i))
	}
	h.close()
	require.NoError(t, os.Remove(h.options.KeyFile))
	h.open() // another generation
	h.add(entry(14))
	h.add(entry(15))
	h.run()
	want := files(t, h.store.dir)
	require.Equal(t, numbers(h.checkpoints()), h.published())
	for name, holes := range map[string]map[int][]int{ // the lines left out, by generation
		"in the middle":           {0: {2}},
		"the first ones":          {0: {0, 1}},
		"the end of a generation": {0: {4}},
		"of several":              {0: {1, 3, 4}, 1: {0}},
		"all but one":             {0: {0, 1, 2, 3}, 1: {0, 1}},
	} {
		for number, left := range holes {
			path := h.store.Log(number).path(proof.HistoryFile)
			lines := strings.SplitAfter(want[[]string{"0", "1"}[number]+"/"+proof.HistoryFile], "\n")
			for _, i := range slices.Backward(left) {
				lines = slices.Delete(lines, i, i+1)
			}
			require.NoError(t, os.WriteFile(path, []byte(strings.Join(lines, "")), 0o600))
		}
		h.run()
		require.Equal(t, want, files(t, h.store.dir), name)
	}
}

// counted counts the checkpoints that are read from the first one on.
type counted struct {
	*audit.Trail
	read int
}

func (c *counted) Checkpoints(ctx context.Context, from uint64, handle func(audit.Kept) error, caughtUp func() error) error {
	return c.Trail.Checkpoints(ctx, from, func(k audit.Kept) error {
		if from == 1 {
			c.read++
		}
		return handle(k)
	}, caughtUp)
}

// A checkpoint that the trail has lost is sought at each start. The others are not read for that.
func TestALostCheckpointIsSoughtAlone(t *testing.T) {
	t.Parallel()
	h := newHouse(t, 10)
	for i := range 4 {
		h.add(entry(10 + i))
	}
	h = h.harmed(harm{checkpoints: []int{1}})
	h.options.Files = nil
	h.open()
	h.sign()
	h.run()
	require.Equal(t, numbers(h.checkpoints())[1:], h.published())
	trail := &counted{Trail: h.trail}
	require.NoError(t, NewKeeper(h.store, trail, h.trail.Generations, nil).Run(t.Context()))
	require.Equal(t, 1, trail.read, "the one after it ends the search")
}

// What another relay signs cannot be proven as long as this one knows less of the trail: here an entry
// that only the other one has seen before its record was damaged. It is published as soon as it is proven.
func TestACheckpointThatIsProvenLaterIsPublished(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h, dir := newHouse(t, 0), t.TempDir()
		h.kept = keptIn(t, dir)
		h.options.KeyFile = filepath.Join(dir, "audit.key")
		h.open()
		add := func(trail *audit.Trail, i int) {
			_, err := trail.Append(t.Context(), entry(i))
			require.NoError(t, err)
			synctest.Wait() // the first one is signed, and then none for an hour
		}
		add(h.trail, 0)
		other, err := audit.Open(t.Context(), h.kept, h.options)
		require.NoError(t, err)
		defer func() { require.NoError(t, other.Close(t.Context())) }()
		add(other, 1)
		add(other, 2)
		_, err = damage.Of(dir).FlipRecord(audit.EntriesLog, 2)
		require.NoError(t, err)
		add(h.trail, 3) // it reads the other one's entries, and names the lost one
		require.NoError(t, other.Sign(t.Context()))
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		go h.keeper().Keep(ctx)
		synctest.Wait()
		require.Equal(t, []int{1, 2}, h.published(), "the third covers an entry that this relay does not know")
		require.NoError(t, h.trail.Sign(t.Context()))
		synctest.Wait()
		require.Equal(t, numbers(h.checkpoints()), h.published())
		require.Equal(t, 4, h.checkpoints())
	})
}

// A damaged history is written again, and keeps the good lines: some of them may be all that is left of
// what the trail has lost.
func TestADamagedHistoryKeepsWhatTheTrailHasLost(t *testing.T) {
	t.Parallel()
	h := newHouse(t, 10)
	for i := range 3 {
		h.add(entry(10 + i))
	}
	h.run()
	want := files(t, h.store.dir)
	h.close()
	h = h.harmed(harm{checkpoints: []int{2}})
	h.open()
	require.NoError(t, h.trail.Sign(t.Context())) // what names the damage; nothing is signed from then on
	for _, line := range []int{2, 3} {
		history := strings.SplitAfter(want["0/"+proof.HistoryFile], "\n")
		history[line] = flip(history[line])
		log := h.store.Log(0)
		require.NoError(t, os.WriteFile(log.path(proof.HistoryFile), []byte(strings.Join(history, "")), 0o600))
		k := h.keeper()
		k.damaged(0, log, errDamaged)
		require.NoError(t, k.Run(t.Context()))
		require.Equal(t, numbers(h.checkpoints()), h.published())
		require.True(t, strings.HasPrefix(files(t, h.store.dir)["0/"+proof.HistoryFile], want["0/"+proof.HistoryFile]))
	}
}
