package cluster

import (
	"bytes"
	"context"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/store"
	"github.com/auditrelay/auditrelay/internal/testbed/natstest"
)

var testConfig = config.Journal{StreamPrefix: "TEST", MaxBytes: 256 << 20, Replicas: 1}

// of picks the promises with such a beginning.
func of(promises []Promise, what string) []Promise {
	return slices.DeleteFunc(slices.Clone(promises), func(p Promise) bool { return !strings.HasPrefix(p.What, what) })
}

// Nothing is durable in a stream that somebody made so before: the relay does not start
// on it, and a check says why.
func TestServersThatAcknowledgeWhatIsNotDurableAreRefused(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		made jetstream.StreamConfig
		want string
	}{
		"async":             {jetstream.StreamConfig{Name: "TEST_EVENTS", Storage: jetstream.FileStorage, PersistMode: jetstream.AsyncPersistMode}, "persist_mode async"},
		"memory":            {jetstream.StreamConfig{Name: "TEST_EVENTS", Storage: jetstream.MemoryStorage}, "is kept in memory"},
		"memory of a shard": {jetstream.StreamConfig{Name: "TEST_EVENTS_2", Storage: jetstream.MemoryStorage}, "is kept in memory"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := natstest.Run(t, t.TempDir(), natstest.SyncAlways)
			cfg := testConfig
			cfg.URL = srv.ClientURL()
			nc, err := nats.Connect(cfg.URL)
			require.NoError(t, err)
			defer nc.Close()
			js, err := jetstream.New(nc)
			require.NoError(t, err)
			cfg.Shards = 3
			c.made.Subjects = []string{"test.events"}
			_, err = js.CreateStream(t.Context(), c.made)
			require.NoError(t, err)

			promises, err := Check(t.Context(), cfg)
			require.NoError(t, err)
			found := of(promises, "stream "+c.made.Name)
			require.Len(t, found, 1)
			assert.Equal(t, Broken, found[0].Verdict)
			assert.Contains(t, found[0].Found, c.want)
			require.ErrorContains(t, Refusal(promises), "stream "+c.made.Name+": ")

			_, err = Open(t.Context(), Config{Journal: cfg, Dir: t.TempDir(), Logger: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry()})
			require.ErrorContains(t, err, c.want)
			require.ErrorContains(t, err, "delete the stream")
		})
	}
}

// A start names weak promises, once, and goes on.
func TestWeakPromisesAreNamed(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t, t.TempDir(), natstest.SyncAlways, func(o *server.Options) { o.SyncAlways = false })
	cfg := testConfig
	cfg.URL = srv.ClientURL()
	var log bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&log, nil))
	s, err := Open(t.Context(), Config{Journal: cfg, Dir: t.TempDir(), Logger: logger, Registerer: prometheus.NewRegistry()})
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()
	_, err = s.Log(t.Context(), "events", store.Options{})
	require.NoError(t, err)
	for _, what := range []string{"what=journal.replicas", "what=sync_interval"} {
		assert.Equal(t, 1, strings.Count(log.String(), what), what)
	}
	assert.Contains(t, log.String(), "it could not be told")

	promises, err := Check(t.Context(), cfg)
	require.NoError(t, err)
	require.NoError(t, Refusal(promises))
	assert.Equal(t, Kept, of(promises, "stream TEST_EVENTS")[0].Verdict)
	cfg.Replicas = 3
	promises, err = Check(t.Context(), cfg)
	require.NoError(t, err)
	assert.Contains(t, of(promises, "stream TEST_EVENTS")[0].Found, "has 1 of 3 replicas")
	assert.Equal(t, Kept, of(promises, "journal.replicas")[0].Verdict)
}

// The system account may ask each server how it syncs.
func TestHowServersSync(t *testing.T) {
	t.Parallel()
	for _, always := range []bool{true, false} {
		srv := natstest.Run(t, t.TempDir(), natstest.SyncAlways, func(o *server.Options) { o.SyncAlways = always })
		system, err := nats.Connect("", nats.InProcessServer(srv))
		require.NoError(t, err)
		defer system.Close()
		js, err := jetstream.New(system)
		require.NoError(t, err)
		a := &asked{js: js, cfg: testConfig}
		require.NoError(t, srv.SystemAccount().AddServiceExport("$SYS.REQ.SERVER.PING.JSZ", nil))
		require.NoError(t, srv.GlobalAccount().AddServiceImport(srv.SystemAccount(), "$SYS.REQ.SERVER.PING.JSZ", "$SYS.REQ.SERVER.PING.JSZ"))
		a.sync(t.Context())
		require.Len(t, a.promises, 1)
		if always {
			assert.Equal(t, Promise{"sync_interval of " + srv.Name(), "always", Kept}, a.promises[0])
		} else {
			assert.Equal(t, Weak, a.promises[0].Verdict)
			assert.Contains(t, a.promises[0].Found, "2m0s; set 'jetstream { sync_interval: always }'")
		}
	}
}

func TestTheLimitOfTheAccount(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t, t.TempDir(), natstest.SyncAlways)
	cfg := testConfig
	cfg.URL, cfg.MaxBytes = srv.ClientURL(), 64<<20
	require.NoError(t, srv.GlobalAccount().UpdateJetStreamLimits(map[string]server.JetStreamAccountLimits{"": {
		MaxMemory: -1, MaxStore: 32 << 20, MaxStreams: -1, MaxConsumers: -1,
	}}))
	promises, err := Check(t.Context(), cfg)
	require.NoError(t, err)
	account := of(promises, "account")
	require.Len(t, account, 1)
	assert.Equal(t, Weak, account[0].Verdict)
	assert.Contains(t, account[0].Found, "33554432 bytes, less than journal.max_bytes")
}

func TestACheckOfServersThatAreAwayFails(t *testing.T) {
	t.Parallel()
	cfg := testConfig
	cfg.URL = "nats://127.0.0.1:1"
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	_, err := Check(ctx, cfg)
	require.ErrorContains(t, err, "journal.url nats://127.0.0.1:1: connect to the journal's NATS")
}

// Servers that are too old are refused.
func TestTheVersionOfAServer(t *testing.T) {
	t.Parallel()
	for version, want := range map[string]string{
		"2.11.9": Broken, "1.4.1": Broken, "2.12": Broken, "2.14.3-RC.1": Broken, "2.15.1": Broken, "2.15.2-RC.3": Broken,
		"2.15.2": Kept, "2.15.10": Kept, "2.16.1-beta.2": Kept, "3.0.0": Kept, "": Kept, "dev": Kept,
	} {
		a := &asked{}
		a.server("n1", version, "c")
		require.Len(t, a.promises, 1)
		assert.Equal(t, want, a.promises[0].Verdict, version)
	}
}
