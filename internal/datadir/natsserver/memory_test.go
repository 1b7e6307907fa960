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

// If this is red after an upgrade, see whether CacheExpire can be configured by now.
func TestBlocksLeaveMemorySooner(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t, t.TempDir(), natstest.SyncAlways)
	require.NoError(t, ForgetAfter(srv, time.Second), "without a stream there is nothing to do")
	js := natstest.JetStream(t, srv)
	_, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "S", Subjects: []string{"s"}, MaxBytes: 100_000})
	require.NoError(t, err)
	publish := func() {
		_, err := js.Publish(t.Context(), "s", make([]byte, 33_000)) // more than one of these blocks takes
		require.NoError(t, err)
	}
	publish()
	require.NoError(t, ForgetAfter(srv, time.Second))
	publish()
	assert.Equal(t, []time.Duration{10 * time.Second, time.Second}, expiries(t, srv))
}

// ForgetAfter reports differences from the known version, and leaves such fields alone.
func TestUnknownFieldsAreLeftAlone(t *testing.T) {
	t.Parallel()
	renamed := struct{ config server.FileStoreConfig }{}
	require.ErrorContains(t, forgetAfter(reflect.ValueOf(&renamed).Elem(), time.Second), "has no field fcfg")
	require.ErrorContains(t, forgetAfter(reflect.ValueOf(1), time.Second), "int has no field fcfg")
	retyped := struct {
		fcfg server.FileStoreConfig
		mu   int
	}{}
	require.ErrorContains(t, forgetAfter(reflect.ValueOf(&retyped).Elem(), time.Second), "has no field mu")
	assert.Zero(t, retyped.fcfg.CacheExpire)
}
