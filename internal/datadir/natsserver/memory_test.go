package natsserver

import (
	"reflect"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/testbed/natstest"
)

// expiries lists the times blocks of a server's only stream stay in memory.
func expiries(t *testing.T, srv *server.Server) (all []time.Duration) {
	t.Helper()
	stores, err := fileStores(srv)
	require.NoError(t, err)
	require.Len(t, stores, 1)
	require.NoError(t, readField(stores[0], "blks", func(blocks reflect.Value) {
		for i := range blocks.Len() {
			expiry, err := fieldOf[time.Duration](blocks.Index(i).Elem(), "cexp")
			require.NoError(t, err)
			all = append(all, *expiry)
		}
	}, reflect.Slice))
	return all
}

// If this is red after an upgrade, see whether CacheExpire and BlockSize can be configured by now.
func TestBlocksLeaveMemorySooner(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t, t.TempDir(), natstest.SyncAlways)
	bounds := Blocks{Expire: time.Second, Small: 20_000, Large: 20_000}
	require.NoError(t, BoundMemory(srv, bounds), "without a stream there is nothing to do")
	js := natstest.JetStream(t, srv)
	_, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "S", Subjects: []string{"s"}, MaxBytes: 100_000})
	require.NoError(t, err)
	publish := func(size int) {
		_, err := js.Publish(t.Context(), "s", make([]byte, size))
		require.NoError(t, err)
	}
	publish(33_000) // more than one of these blocks takes
	require.NoError(t, BoundMemory(srv, bounds))
	publish(33_000)
	assert.Equal(t, []time.Duration{10 * time.Second, time.Second}, expiries(t, srv))
	publish(12_000)
	publish(12_000)
	assert.Len(t, expiries(t, srv), 4, "a block of 32,000 bytes would take both")
}

// A small block for small messages, a large one for large messages, and the other way
// round once the messages are different.
func TestBlocksFollowTheSizeOfMessages(t *testing.T) {
	t.Parallel()
	const mib = 1 << 20
	b := Blocks{Small: mib, Large: 4 * mib}
	for name, c := range map[string]struct{ old, messages, bytes, want uint64 }{
		"the server's own, nothing known": {8 * mib, 0, 0, 4 * mib},
		"small messages":                  {8 * mib, 1000, 1000 * 80_000, mib},
		"large messages":                  {8 * mib, 1000, 1000 * 230_000, 4 * mib},
		"large ones after small ones":     {mib, 10, 10 * 230_000, 4 * mib},
		"small ones after large ones":     {4 * mib, 10, 10 * 80_000, mib},
		"all messages are trimmed":        {mib, 0, 0, mib},
		"a stream with a small budget":    {32_000, 10, 10 * 230_000, 32_000},
	} {
		assert.Equal(t, c.want, b.size(c.old, &server.StreamState{Msgs: c.messages, Bytes: c.bytes}), name)
	}
}

// BoundMemory reports differences from the known version, and leaves such fields alone.
func TestUnknownFieldsAreLeftAlone(t *testing.T) {
	t.Parallel()
	renamed := struct{ config server.FileStoreConfig }{}
	require.ErrorContains(t, boundMemory(reflect.ValueOf(&renamed).Elem(), Blocks{}), "has no field fcfg")
	require.ErrorContains(t, boundMemory(reflect.ValueOf(1), Blocks{}), "int has no field fcfg")
	retyped := struct {
		fcfg server.FileStoreConfig
		mu   int
	}{}
	require.ErrorContains(t, boundMemory(reflect.ValueOf(&retyped).Elem(), Blocks{Expire: time.Second}), "has no field mu")
	assert.Zero(t, retyped.fcfg.CacheExpire)
}
