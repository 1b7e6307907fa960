package journal

import (
	"context"
	"log/slog"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/record"
	"github.com/auditrelay/auditrelay/internal/streamserver"
	"github.com/auditrelay/auditrelay/internal/testbed/natstest"
	"github.com/auditrelay/auditrelay/internal/testbed/waiting"
	"github.com/auditrelay/auditrelay/relay"
	"github.com/auditrelay/auditrelay/relay/relaytest"
)

// startExternal starts a server with JetStream on dir. It listens on port, or for 0 on one
// of its own choosing.
func startExternal(t *testing.T, dir string, port int, changes ...func(*server.Options)) *server.Server {
	t.Helper()
	return natstest.Run(t, dir, append(changes, natstest.SyncAlways, natstest.Port(port))...)
}

func TestExternalServer(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	srv := startExternal(t, dir, 0)
	cfg := testConfig
	cfg.URL = srv.ClientURL()
	j := open(t, t.TempDir(), cfg)
	defer j.shut(t)
	assert.Equal(t, 1<<20, j.conn.MaxPayload())
	s := j.source(t, "k")
	defer s.Close()

	// As large as config allows of line_bytes with an external server.
	large := relaytest.Events(3, relaytest.BodyBytes(900<<10))
	j.push(t, large)
	many := relaytest.Events(3000, relaytest.From(3), relaytest.BodyBytes(1000))
	j.push(t, many)
	assert.Equal(t, ids(append(large, many...)), ids(read(t, s, 3003, true)))
	require.ErrorIs(t, j.Append(t.Context(), batchOf(relaytest.Events(1, relaytest.BodyBytes(1<<20)))), record.ErrTooLarge)

	// The server goes away and comes back: appends wait for it, no acknowledged event is
	// missing, and a retried record is there once.
	addr, ok := srv.Addr().(*net.TCPAddr)
	require.True(t, ok)
	var pushing sync.WaitGroup
	var mu sync.Mutex
	var kept []string
	for p := range 4 {
		pushing.Go(func() {
			for i := range 40 {
				e := relaytest.Events(1, relaytest.From(10_000+p*1000+i))
				if assert.NoError(t, j.Append(t.Context(), batchOf(e))) {
					mu.Lock()
					kept = append(kept, e[0].ID)
					mu.Unlock()
				}
			}
		})
	}
	srv.Shutdown()
	srv.WaitForShutdown()
	startExternal(t, dir, addr.Port)
	pushing.Wait()
	assert.ElementsMatch(t, kept, ids(read(t, s, len(kept), true)))
}

func TestAnExternalServerThatIsAwayRefuses(t *testing.T) {
	t.Parallel()
	cfg := testConfig
	cfg.URL = "nats://127.0.0.1:1"
	short, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond) // else it is waited for
	defer cancel()
	_, err := streamserver.Connect(short, t.TempDir(), cfg, slog.New(slog.DiscardHandler))
	require.ErrorContains(t, err, "journal.url nats://127.0.0.1:1: connect to the journal's NATS")

	srv := startExternal(t, t.TempDir(), 0)
	cfg.URL = srv.ClientURL()
	conn, err := streamserver.Connect(t.Context(), t.TempDir(), cfg, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close()) }()
	j, err := Open(t.Context(), conn, cfg, Options{Logger: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry()})
	require.NoError(t, err)
	defer j.Close()
	require.NoError(t, conn.Err())
	srv.Shutdown()
	srv.WaitForShutdown()
	waiting.Until(t, func() bool { return conn.Err() != nil })
	j.commits.patience = 300 * time.Millisecond
	require.ErrorIs(t, j.Append(t.Context(), batchOf([]relay.Event{relaytest.Events(1)[0]})), ErrUnavailable)
}
