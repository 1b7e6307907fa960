package audit

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// followBoth follows entries and checkpoints under one name, until the entries so far and a
// checkpoint over them were handled. It gives the checkpoints, each with the number of
// entries handled before it.
func followBoth(t *testing.T, trail *Trail) (signed []Kept, handled []int64) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var mu sync.Mutex
	entries := int64(0)
	var running sync.WaitGroup
	running.Go(func() {
		err := trail.Follow(ctx, "journal", func(_ context.Context, e Recorded) error {
			time.Sleep(time.Millisecond) // to give a checkpoint the chance to be too early
			mu.Lock()
			defer mu.Unlock()
			entries = max(entries, e.Index+1)
			return nil
		})
		assert.ErrorIs(t, err, context.Canceled)
	})
	err := trail.FollowCheckpoints(ctx, "journal", func(_ context.Context, c Kept) error {
		mu.Lock()
		defer mu.Unlock()
		signed, handled = append(signed, c), append(handled, entries)
		if c.Base+c.Size == trail.Size() {
			cancel()
		}
		return nil
	})
	require.ErrorIs(t, err, context.Canceled)
	running.Wait()
	return signed, handled
}

// Each checkpoint comes once, behind its entries, and with its own signature; after a
// restart only the newer ones come.
func TestFollowCheckpoints(t *testing.T) {
	t.Parallel()
	d := newDamageable(t)
	trail, js := d.reopen(t, d.entries, d.checkpoints, 0)
	signed, handled := followBoth(t, trail)
	require.NotEmpty(t, signed)
	for i, c := range signed {
		require.GreaterOrEqual(t, handled[i], c.Size, "it overtook its entries")
		require.EqualValues(t, i+1, c.Seq)
		opened, err := openCheckpoint(d.public, []byte(c.Note))
		require.NoError(t, err)
		require.Equal(t, []any{opened.size, opened.root, "example.com/trail"}, []any{c.Size, c.Root, c.Origin})
		require.Equal(t, trail.NameOf(0), c.Name())
		require.False(t, c.Time.IsZero())
	}
	require.Equal(t, d.root, signed[len(signed)-1].Root)
	require.NoError(t, trail.Close(t.Context()))

	trail = openTrail(t, js, d.o)
	appendAt(t, trail, 1)
	require.NoError(t, trail.sign(t.Context()))
	more, _ := followBoth(t, trail)
	// At least once: an acknowledgement just before the stop may be forgotten.
	require.LessOrEqual(t, len(more), 2)
	require.EqualValues(t, 21, more[len(more)-1].Size)
}

// Whoever starts on a long trail gets the newest checkpoints: they vouch for the older ones.
func TestFollowCheckpointsFromFarBehind(t *testing.T) {
	t.Parallel()
	o := testOptions(t)
	o.SignEvery = time.Hour
	js, _ := startServer(t, t.TempDir())
	trail := openTrail(t, js, o)
	for i := range maxBehind + 20 {
		appendEntries(t, trail, i, i+1)
		require.NoError(t, trail.sign(t.Context()))
	}
	signed, _ := followBoth(t, trail)
	require.LessOrEqual(t, len(signed), maxBehind+1)
	require.EqualValues(t, maxBehind+20, signed[len(signed)-1].Size)
}

// Entries that nobody can read any more do not hold up a checkpoint.
func TestLostEntriesHoldUpNoCheckpoint(t *testing.T) {
	t.Parallel()
	d := newDamageable(t)
	trail, _ := d.reopen(t, d.entries, d.checkpoints, 20)
	require.NoError(t, trail.sign(t.Context()))
	signed, _ := followBoth(t, trail)
	require.EqualValues(t, 21, signed[len(signed)-1].Size, "with the entry that names the lost one")
}
