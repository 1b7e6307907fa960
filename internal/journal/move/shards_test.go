package move_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/journal"
	"github.com/auditrelay/auditrelay/internal/store"
	"github.com/auditrelay/auditrelay/internal/testbed/natstest"
)

// A shard that is not used any more stays in the old place, where its sinks' positions stay as well:
// moved back there, the journal gives nobody its events again.
func TestAnUnusedShardStays(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t, t.TempDir(), natstest.SyncAlways)
	there, here := onCluster(t, srv.ClientURL()), onDisk(t)
	values := []string{"shards", "sink=1/a", "position=1/a", "trim=1"}
	p := there.open(t, nil)
	for shard := range 2 {
		l, err := p.Log(t.Context(), journal.LogOf(shard), store.Options{MaxBytes: 64 << 20})
		require.NoError(t, err)
		_, err = l.Append(t.Context(), store.Draft{Kind: 1, Key: "1", Data: []byte("x")})
		require.NoError(t, err)
	}
	for _, key := range append(values, "sink/a") {
		_, err := p.Table().Put(t.Context(), key, []byte(`{"version":1}`), store.If{})
		require.NoError(t, err)
	}
	require.NoError(t, p.Close())

	require.NoError(t, run(t, there, here, nil))
	moved := here.picture(t)
	assert.Contains(t, moved.Logs, journal.EventsLog)
	assert.NotContains(t, moved.Logs, journal.LogOf(1))
	assert.Contains(t, moved.Values, "sink/a")
	for _, key := range values {
		assert.NotContains(t, moved.Values, key)
	}
	require.NoError(t, run(t, here, there, nil))
	back := there.picture(t)
	assert.Len(t, back.Logs[journal.LogOf(1)].Records, 1)
	for _, key := range values {
		assert.Contains(t, back.Values, key)
	}
}
