package idkey

import (
	"log/slog"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/config/secret"
	"github.com/auditrelay/auditrelay/internal/streamserver"
)

func TestGet(t *testing.T) {
	t.Parallel()
	dir, cfg, log := t.TempDir(), config.Journal{StreamPrefix: "TEST", Replicas: 1}, slog.New(slog.DiscardHandler)
	conn, err := streamserver.Connect(t.Context(), dir, cfg, log)
	require.NoError(t, err)
	get := func() secret.Text { return Get(t.Context(), conn.JetStream, cfg, log) }
	first := get()
	require.Len(t, first.Reveal(), keyBytes)
	assert.True(t, first == get(), "another relay on the same journal has the same")
	require.NoError(t, conn.Close())
	conn, err = streamserver.Connect(t.Context(), dir, cfg, log)
	require.NoError(t, err)
	defer func() { assert.NoError(t, conn.Close()) }()
	assert.True(t, first == get(), "it outlives a restart")
	kv, err := conn.JetStream.KeyValue(t.Context(), "TEST_KEYS")
	require.NoError(t, err)
	_, err = kv.Put(t.Context(), keyName, append(newKey()[:keyBytes], "damaged!"...))
	require.NoError(t, err)
	second := get()
	require.Len(t, second.Reveal(), keyBytes)
	assert.False(t, first == second, "a new one follows a damaged one")
	require.NoError(t, kv.Delete(t.Context(), keyName))
	third := get()
	assert.False(t, second == third, "and a lost one")
	assert.True(t, third == get())
}
