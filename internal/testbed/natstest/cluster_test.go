package natstest

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/testbed/waiting"
)

func TestMain(m *testing.M) { Main(m) }

func TestALeaderIsKilledAndComesBack(t *testing.T) {
	t.Parallel()
	n, err := StartCluster(t.Context(), Options{Command: Self(t), Dir: t.TempDir()})
	require.NoError(t, err)
	defer n.Close()
	for _, stream := range []string{"A", "B"} {
		require.NoError(t, n.CreateStream(t.Context(), stream, stream+".>", 100*time.Millisecond))
	}
	leader, err := n.Leader(t.Context(), "A")
	require.NoError(t, err)
	require.NoError(t, n.Lead(t.Context(), "B", leader))
	other, err := n.Leader(t.Context(), "B")
	require.NoError(t, err)
	assert.Equal(t, leader, other)

	_, err = n.js.Publish(t.Context(), "A.x", []byte("before"))
	require.NoError(t, err)
	require.Error(t, n.Restart(t.Context(), leader), "it runs")
	n.Kill(leader)
	assert.Len(t, n.Alive(), 2)
	waiting.Until(t, func() bool {
		_, err := n.js.Publish(t.Context(), "A.x", []byte("meanwhile"), jetstream.WithRetryAttempts(0))
		return err == nil
	}, "two of three go on")
	now, err := n.Leader(t.Context(), "A")
	require.NoError(t, err)
	assert.NotEqual(t, leader, now)

	require.NoError(t, n.Restart(t.Context(), leader))
	require.NoError(t, n.WaitInSync(t.Context(), "A", waiting.Stall))
	require.NoError(t, n.Lead(t.Context(), "A", leader), "it may lead again")
}
