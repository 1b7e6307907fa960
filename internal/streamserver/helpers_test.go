package streamserver

import (
	"log/slog"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/testbed/natstest"
)

var (
	testConfig = config.Journal{StreamPrefix: "TEST", MaxBytes: 256 << 20, ReplayWindow: time.Hour, Replicas: 1}
	silent     = slog.New(slog.DiscardHandler)
)

func connected(t *testing.T, dir string, cfg config.Journal) *Conn {
	t.Helper()
	conn, err := Connect(t.Context(), dir, cfg, silent)
	require.NoError(t, err)
	return conn
}

// startExternal starts a server on a port, with an fsync before each acknowledgement.
func startExternal(t *testing.T, changes ...func(*server.Options)) *server.Server {
	t.Helper()
	return natstest.Run(t, t.TempDir(), append([]func(*server.Options){natstest.SyncAlways}, changes...)...)
}
