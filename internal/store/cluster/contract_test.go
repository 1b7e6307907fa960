package cluster

import (
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/store"
	"github.com/auditrelay/auditrelay/internal/store/storetest"
	"github.com/auditrelay/auditrelay/internal/testbed/natstest"
)

// TestMain lets the test's binary be a node of a cluster, to be killed and frozen.
func TestMain(m *testing.M) { natstest.Main(m) }

var prefixes atomic.Int64

// backend is a prefix of streams, under the suite.
type backend struct {
	cfg   Config
	store *Store
}

// newBackend opens a store with streams of its own. It is closed when the test ends.
func newBackend(t testing.TB, url string, replicas int) *backend {
	t.Helper()
	b := &backend{cfg: Config{
		Journal: config.Journal{URL: url, Replicas: replicas, StreamPrefix: fmt.Sprintf("T%d", prefixes.Add(1)), MaxBytes: 64 << 20},
		Dir:     t.TempDir(), Salvage: t.TempDir(), Version: "test", Logger: slog.New(slog.DiscardHandler),
	}}
	b.open(t)
	t.Cleanup(func() { require.NoError(t, b.store.Close()) })
	return b
}

func (b *backend) open(t testing.TB) {
	t.Helper()
	b.cfg.Registerer = prometheus.NewRegistry()
	var err error
	b.store, err = Open(t.Context(), b.cfg)
	require.NoError(t, err)
}

func (b *backend) Log(t testing.TB, name string) store.Log { return b.log(t, name) }

func (b *backend) LogAs(t testing.TB, name string, id store.ID) store.Log {
	t.Helper()
	l, err := b.store.Log(t.Context(), name, store.Options{MaxBytes: 32 << 20, ID: id})
	require.NoError(t, err)
	return l
}

func (b *backend) log(t testing.TB, name string) *Log {
	t.Helper()
	l, err := b.store.Log(t.Context(), name, store.Options{MaxBytes: 32 << 20})
	require.NoError(t, err)
	return l.(*Log)
}

func (b *backend) Table() store.Table { return b.store.Table() }

// Kill drops the connection, and what was not written yet.
func (b *backend) Kill(t testing.TB) {
	b.kill()
	b.open(t)
}

func (b *backend) kill() {
	b.store.stop()
	b.store.js.Conn().Close()
	b.store.background.Wait()
}

// LosesLazyValues tells the suite that a kill costs the lazy values of the last moment.
func (b *backend) LosesLazyValues() {}

func TestContract(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t, t.TempDir(), natstest.SyncAlways)
	storetest.Run(t, func(t testing.TB) storetest.Backend { return newBackend(t, srv.ClientURL(), 1) })
}

func TestContractOnThreeServers(t *testing.T) {
	t.Parallel()
	c := startCluster(t)
	storetest.Run(t, func(t testing.TB) storetest.Backend { return newBackend(t, c.URL, 3) })
}

// startCluster starts three servers, and returns when each stream can have a replica on each.
func startCluster(t *testing.T) *natstest.Cluster {
	t.Helper()
	c, err := natstest.StartCluster(t.Context(), natstest.Options{Command: natstest.Self(t), Dir: t.TempDir()})
	require.NoError(t, err)
	t.Cleanup(c.Close)
	require.NoError(t, c.CreateStream(t.Context(), "READY", "ready", time.Minute))
	return c
}
