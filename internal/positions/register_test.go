package positions

import (
	"log/slog"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/streamserver"
)

func open(t *testing.T) *register {
	t.Helper()
	cfg, log := config.Journal{StreamPrefix: "TEST", Replicas: 1}, slog.New(slog.DiscardHandler)
	conn, err := streamserver.Connect(t.Context(), t.TempDir(), cfg, log)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, conn.Close()) })
	events, err := conn.JetStream.CreateStream(t.Context(), jetstream.StreamConfig{Name: "TEST_EVENTS", Subjects: []string{"test.events"}})
	require.NoError(t, err)
	r, err := openRegister(t.Context(), conn, events, cfg, log)
	require.NoError(t, err)
	return r
}

// A running relay forgets no sink, even if the servers lose their newest writes.
func TestARegisterThatLostItsEndIsWrittenAgain(t *testing.T) {
	t.Parallel()
	r := open(t)
	assert.False(t, r.any())
	require.NoError(t, r.add(t.Context(), "a"))
	require.NoError(t, r.add(t.Context(), "b"))
	require.NoError(t, r.retire(t.Context(), "b"))
	sinks, err := r.read(t.Context())
	require.NoError(t, err)
	require.Equal(t, []string{"a"}, sinks)
	require.NoError(t, r.stream.Purge(t.Context()))
	for range 2 {
		sinks, err = r.read(t.Context())
		require.NoError(t, err)
		assert.Equal(t, []string{"a"}, sinks)
	}
	info, err := r.stream.Info(t.Context())
	require.NoError(t, err)
	assert.Equal(t, uint64(1), info.State.Msgs)
}
