package audit

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func none(context.Context, Kept) error { return nil }

// followUntil forwards until the entry last was handled, and returns the order.
func followUntil(t *testing.T, trail *Trail, last int64, fail func(index int64) error) []int64 {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var seen []int64
	err := trail.Forward(ctx, "journal", func(_ context.Context, e Recorded) error {
		if err := fail(e.Index); err != nil {
			return err
		}
		if seen = append(seen, e.Index); e.Index == last {
			cancel()
		}
		return nil
	}, none)
	require.ErrorIs(t, err, context.Canceled)
	return seen
}

func TestForward(t *testing.T) {
	t.Parallel()
	dir, o := t.TempDir(), testOptions(t)
	st, stop := startStore(t, dir)
	trail := openTrail(t, st, o)
	appendEntries(t, trail, 0, 5)
	failures := 2
	seen := followUntil(t, trail, 4, func(index int64) error {
		if index == 2 && failures > 0 {
			failures--
			return errors.New("journal is full")
		}
		return nil
	})
	require.Equal(t, []int64{0, 1, 2, 3, 4}, seen, "a failure repeats nothing")
	require.NoError(t, trail.Close(t.Context()))
	stop()

	st, _ = startStore(t, dir)
	trail = openTrail(t, st, o)
	appendEntries(t, trail, 5, 7)
	seen = followUntil(t, trail, 6, func(int64) error { return nil })
	// At least once: the position is not kept for an entry that was handled as it was told to stop.
	require.Equal(t, []int64{5, 6}, seen[len(seen)-2:])
}

// forwardAll forwards until the entries so far and a checkpoint over them were handled. It
// gives the checkpoints, each with the number of entries handled before it.
func forwardAll(t *testing.T, trail *Trail) (signed []Kept, handled []int64) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	entries := int64(0)
	err := trail.Forward(ctx, "journal", func(_ context.Context, e Recorded) error {
		entries = max(entries, e.Index+1)
		return nil
	}, func(_ context.Context, c Kept) error {
		signed, handled = append(signed, c), append(handled, entries)
		if c.Base+c.Size == trail.Size() {
			cancel()
		}
		return nil
	})
	require.ErrorIs(t, err, context.Canceled)
	return signed, handled
}

// Each checkpoint comes once, after its entries, and with its own signature; after a
// restart only the newer ones come.
func TestForwardedCheckpoints(t *testing.T) {
	t.Parallel()
	d := newDamageable(t)
	trail, st := d.reopen(t, d.entries, d.checkpoints, 0)
	signed, handled := forwardAll(t, trail)
	require.NotEmpty(t, signed)
	for i, c := range signed {
		require.GreaterOrEqual(t, max(handled[i], handled[0]), c.Size, "it overtook its entries")
		require.EqualValues(t, i+1, c.Seq)
		opened, err := openCheckpoint(d.public, []byte(c.Note))
		require.NoError(t, err)
		require.Equal(t, []any{opened.Size, opened.Root, "example.com/trail"}, []any{c.Size, c.Root, c.Origin})
		require.Equal(t, trail.NameOf(0), NameOf(c.PublicKey))
		require.False(t, c.Time.IsZero())
	}
	require.Equal(t, d.root, signed[len(signed)-1].Root)
	require.NoError(t, trail.Close(t.Context()))

	trail = openTrail(t, st, d.o)
	appendAt(t, trail, 1)
	require.NoError(t, trail.Sign(t.Context()))
	more, _ := forwardAll(t, trail)
	// At least once: see TestForward.
	require.LessOrEqual(t, len(more), len(signed)+1)
	require.EqualValues(t, 21, more[len(more)-1].Size)
}

// Whoever starts on a long trail gets the newest checkpoints: they vouch for the older ones.
func TestForwardPassesOverOldCheckpoints(t *testing.T) {
	t.Parallel()
	o := testOptions(t)
	o.SignEvery = time.Hour
	st, _ := startStore(t, t.TempDir())
	trail := openTrail(t, st, o)
	for i := range maxPassed + 20 {
		appendEntries(t, trail, i, i+1)
		require.NoError(t, trail.Sign(t.Context()))
	}
	signed, _ := forwardAll(t, trail)
	require.LessOrEqual(t, len(signed), maxPassed+1)
	require.EqualValues(t, maxPassed+20, signed[len(signed)-1].Size)
}

// Entries that nobody can read any more do not hold up a checkpoint.
func TestLostEntriesHoldUpNoCheckpoint(t *testing.T) {
	t.Parallel()
	d := newDamageable(t)
	trail, _ := d.reopen(t, d.entries, d.checkpoints, 20)
	require.NoError(t, trail.Sign(t.Context()))
	signed, _ := forwardAll(t, trail)
	require.EqualValues(t, 21, signed[len(signed)-1].Size, "with the entry that names the lost one")
}

// A relay that takes over goes on where the one before it has stopped. If that one was only thought
// dead, then nothing is left out.
func TestAnotherRelayGoesOn(t *testing.T) {
	t.Parallel()
	st, _ := startStore(t, t.TempDir())
	o := testOptions(t)
	o.Shared = true
	one, other := openTrail(t, st, o), openTrail(t, st, o)
	forward := func(trail *Trail) (seen chan int64, stop func()) {
		seen = make(chan int64, 100)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			err := trail.Forward(ctx, "journal", func(_ context.Context, e Recorded) error { seen <- e.Index; return nil }, none)
			assert.ErrorIs(t, err, context.Canceled)
		}()
		return seen, func() { cancel(); <-done }
	}
	seen, stop := forward(one)
	appendEntries(t, one, 0, 3)
	for i := range int64(3) {
		require.Equal(t, i, <-seen)
	}
	stop()
	taken, stopOther := forward(other)
	defer stopOther()
	appendEntries(t, other, 3, 4)
	require.EqualValues(t, 3, <-taken, "nothing comes twice")

	seen, stop = forward(one)
	defer stop()
	appendEntries(t, other, 4, 5)
	for index := int64(3); index < 4; { // one of them gives it, or both; what was just given may come again
		select {
		case index = <-seen:
		case index = <-taken:
		}
	}
}
