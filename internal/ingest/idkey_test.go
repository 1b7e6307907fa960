package ingest

import (
	"bytes"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/config/secret"
	"github.com/auditrelay/auditrelay/internal/store"
	"github.com/auditrelay/auditrelay/internal/store/disk"
)

func TestOpenIDKey(t *testing.T) {
	t.Parallel()
	var told bytes.Buffer
	log := slog.New(slog.NewTextHandler(&told, nil))
	cfg := disk.Config{Dir: t.TempDir(), Salvage: t.TempDir(), Writer: "test", Logger: slog.New(slog.DiscardHandler)}
	s, err := disk.Open(cfg)
	require.NoError(t, err)
	get := func() secret.Text {
		return OpenIDKey(t.Context(), s.Table(), log)
	}
	keys := make([]secret.Text, 8)
	var relays sync.WaitGroup
	for i := range keys {
		relays.Go(func() { keys[i] = get() })
	}
	relays.Wait()
	for _, key := range keys {
		require.Len(t, key.Reveal(), idKeyBytes)
		assert.True(t, keys[0] == key, "another relay on the same store has the same")
	}
	require.NoError(t, s.Close())
	s, err = disk.Open(cfg)
	require.NoError(t, err)
	assert.True(t, keys[0] == get(), "it outlives a restart")

	_, err = s.Table().Put(t.Context(), idKeyName, []byte("short"), store.If{})
	require.NoError(t, err)
	second := get()
	require.Len(t, second.Reveal(), idKeyBytes)
	assert.False(t, keys[0] == second, "a new one follows a damaged one")
	assert.True(t, second == get())
	assert.Contains(t, told.String(), "was lost or damaged")
	assert.Equal(t, 1, strings.Count(told.String(), "made the key"), "only the relay whose key is kept says that it made it")

	require.NoError(t, s.Close())
	alone := get()
	require.Len(t, alone.Reveal(), idKeyBytes)
	assert.False(t, second == alone, "without a store it is this process's own")
	assert.NotContains(t, told.String(), second.Reveal())
}
