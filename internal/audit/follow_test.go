package audit

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
)

// followUntil follows until the entry last was handled, and returns the order.
func followUntil(t *testing.T, trail *Trail, last int64, fail func(index int64) error) []int64 {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var seen []int64
	err := trail.Follow(ctx, "journal", func(_ context.Context, e Recorded) error {
		index := e.Index
		if err := fail(index); err != nil {
			return err
		}
		if seen = append(seen, index); index == last {
			cancel()
		}
		return nil
	})
	require.ErrorIs(t, err, context.Canceled)
	return seen
}

func TestFollow(t *testing.T) {
	t.Parallel()
	dir, o := t.TempDir(), testOptions(t)
	js, stop := startServer(t, dir)
	trail := openTrail(t, js, o)
	appendEntries(t, trail, 0, 5)
	failures := 2
	seen := followUntil(t, trail, 4, func(index int64) error {
		if index == 2 && failures > 0 {
			failures--
			return errors.New("journal is full")
		}
		return nil
	})
	require.Equal(t, []int64{0, 1, 2, 3, 4}, seen)
	require.NoError(t, trail.Close(t.Context()))
	stop()

	js, _ = startServer(t, dir)
	trail = openTrail(t, js, o)
	appendEntries(t, trail, 5, 7)
	seen = followUntil(t, trail, 6, func(int64) error { return nil })
	// At least once: an acknowledgement just before the stop may be forgotten.
	require.Equal(t, []int64{5, 6}, seen[len(seen)-2:])
	require.LessOrEqual(t, len(seen), 3)
}
