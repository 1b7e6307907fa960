package app

import (
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/admin"
	"github.com/auditrelay/auditrelay/internal/audit"
	"github.com/auditrelay/auditrelay/internal/datadir"
	"github.com/auditrelay/auditrelay/internal/datadir/natsserver"
	"github.com/auditrelay/auditrelay/internal/streamserver"
)

// The trail acknowledges a record once its block's name is durable.
// Here the folder cannot be synced, while the server writes on to its open block.
func TestTheControlPathWaitsForTheNameOfABlock(t *testing.T) {
	t.Parallel()
	cfg, log, reg := testConfig(t.TempDir()), slog.New(slog.DiscardHandler), prometheus.NewRegistry()
	conn, err := streamserver.Connect(t.Context(), cfg.DataDir, cfg.Journal, log)
	require.NoError(t, err)
	r := &process{cfg: cfg, log: log, reg: reg, stack: stack{log: log}, conn: conn, admin: admin.New(reg, admin.Options{})}
	r.stack.push("connection", func(context.Context) error { return conn.Close() })
	require.NoError(t, r.startTrail(t.Context()))
	for stream, keep := range map[string]func() error{
		"AUDITRELAY_AUDIT": func() error {
			_, err := r.trail.Append(t.Context(), audit.Entry{Type: "settings.changed", Project: "acme", Subject: "project", Time: time.Now(), After: json.RawMessage("1")})
			return err
		},
	} {
		require.NoError(t, keep(), stream)
		folder := filepath.Join(datadir.StreamDir(cfg.DataDir, stream), natsserver.MessagesDir)
		require.NoError(t, os.Rename(folder, folder+".away"))
		conn.Shrunk(stream) // so that it is looked at
		err := keep()
		require.NoError(t, os.Rename(folder+".away", folder))
		require.ErrorContains(t, err, "newest block", stream)
		require.NoError(t, keep(), stream)
	}
	require.NoError(t, r.stack.unwind(t.Context()))
}
