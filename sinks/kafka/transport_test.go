package kafka

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/auditrelay/auditrelay/relay/relaytest"
)

func TestConnectionsAreReusedUntilOld(t *testing.T) {
	t.Parallel()
	c := newCluster(t, kfake.SeedTopics(1, testTopic))
	s := c.sink(t, nil)
	broker := c.ListenAddrs()[0]
	for range 3 {
		require.NoError(t, s.Deliver(t.Context(), relaytest.Events(10)))
		require.Len(t, s.transport.idle[broker], 1)
	}
	first := s.transport.idle[broker][0]
	assert.Empty(t, s.transport.busy)

	old := time.Now().Add(idleTimeout + time.Second)
	reused, err := s.transport.reuse(broker, old)
	require.NoError(t, err)
	assert.Nil(t, reused)
	s.transport.trim(old)
	assert.Empty(t, s.transport.idle[broker])

	require.NoError(t, s.Deliver(t.Context(), relaytest.Events(10)))
	assert.NotSame(t, first, s.transport.idle[broker][0])
	require.NoError(t, s.Close())
	assert.Empty(t, s.transport.idle)
	require.ErrorIs(t, s.Deliver(t.Context(), relaytest.Events(1)), errClosed)
}
