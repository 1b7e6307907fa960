package streams_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/streams"
)

func TestAKeptAnswerIsAskedForOnceASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		kept := streams.Keep(func(ctx context.Context) (int, error) {
			_, bounded := ctx.Deadline()
			assert.True(t, bounded)
			if asked++; asked == 2 {
				return 0, errors.New("away")
			}
			return asked, nil
		})
		for range 3 {
			got, err := kept.Get()
			require.NoError(t, err)
			assert.Equal(t, 1, got)
		}
		time.Sleep(time.Second)
		_, err := kept.Get()
		require.EqualError(t, err, "away")
		_, err = kept.Get()
		require.EqualError(t, err, "away", "a server that is away is not asked at each scrape either")
		time.Sleep(time.Second)
		got, err := kept.Get()
		require.NoError(t, err)
		assert.Equal(t, 3, got)
	})
}
