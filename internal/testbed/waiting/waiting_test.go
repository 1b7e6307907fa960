package waiting

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestProgressIsWaitedFor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		hours := func() any { return int(time.Since(start).Hours() * 20) } // moves every 3 minutes
		require.NoError(t, For(t.Context(), hours, func() bool { return time.Since(start) > 5*time.Hour }))
	})
}

func TestStandstillEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		start, n := time.Now(), 0
		err := For(t.Context(), func() any { n = min(n+1, 7); return n }, func() bool { return false })
		require.ErrorContains(t, err, "nothing has moved for 4m0s; the last progress seen is 7")
		assert.Less(t, time.Since(start), Stall+time.Second)
	})
}

func TestContextEndsIt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		reason := errors.New("enough")
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Minute, reason)
		defer cancel()
		require.ErrorIs(t, For(ctx, func() any { return 3 }, func() bool { return false }), reason)
	})
}
