package retry_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/retry"
)

func TestSleepEndsWithTheTimeOrTheContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		require.NoError(t, retry.Sleep(t.Context(), time.Minute))
		assert.Equal(t, time.Minute, time.Since(start))

		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, retry.Sleep(ctx, time.Hour), context.DeadlineExceeded)
		assert.Equal(t, time.Minute+time.Second, time.Since(start))
	})
}
