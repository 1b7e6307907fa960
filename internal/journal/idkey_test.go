package journal

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestIDKey(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	o := open(t, dir, testConfig)
	first := o.IDKey(t.Context())
	require.Len(t, first.Reveal(), idKeyBytes)
	assert.True(t, first == o.IDKey(t.Context()), "another relay on the same journal has the same")
	o.shut(t)
	o = open(t, dir, testConfig)
	defer o.shut(t)
	assert.True(t, first == o.IDKey(t.Context()), "it outlives a restart")
	kv, err := o.conn.JetStream.KeyValue(t.Context(), o.names.keys)
	require.NoError(t, err)
	_, err = kv.Put(t.Context(), idKeyName, append(newIDKey()[:idKeyBytes], "damaged!"...))
	require.NoError(t, err)
	second := o.IDKey(t.Context())
	require.Len(t, second.Reveal(), idKeyBytes)
	assert.False(t, first == second, "a damaged one is followed by a new one")
	require.NoError(t, kv.Delete(t.Context(), idKeyName))
	third := o.IDKey(t.Context())
	assert.False(t, second == third, "so is a lost one")
	assert.True(t, third == o.IDKey(t.Context()))
}
