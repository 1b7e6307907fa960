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
	bounds := Blocks{Expire: time.Second, Bytes: 20_000}
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
