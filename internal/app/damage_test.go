package app

import (
	"fmt"
	"log/slog"
	"net/http"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/console"
	"github.com/auditrelay/auditrelay/internal/journal"
	"github.com/auditrelay/auditrelay/internal/streamserver"
)

// spoil puts undecodable records into a stopped relay's journal.
func spoil(t *testing.T, cfg *config.Config, n int) {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	conn, err := streamserver.Connect(t.Context(), cfg.DataDir, cfg.Journal, log)
	require.NoError(t, err)
	j, err := journal.Open(t.Context(), conn, cfg.Journal, journal.Options{Logger: log, Registerer: prometheus.NewRegistry()})
	require.NoError(t, err)
	for i := range n {
		_, err := conn.JetStream.Publish(t.Context(), "auditrelay.events", fmt.Appendf(nil, "spoilt record %d", i))
		require.NoError(t, err)
	}
	j.Close()
	require.NoError(t, conn.Close())
}

func TestMuchDamageWaitsForAPersonWhilePushesAreTaken(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t.TempDir())
	r := start(t, cfg)
	code, body := r.push("before")
	require.Equal(t, http.StatusNoContent, code, body)
	r.arrived("before")
	require.NoError(t, r.stop())
	spoil(t, cfg, 20)

	r = start(t, cfg)
	code, body = r.push("after")
	require.Equal(t, http.StatusNoContent, code, body)
	client := console.NewClient(cfg.DataDir)
	for {
		d, err := client.Damage(t.Context())
		require.NoError(t, err)
		if len(d.Waiting) > 0 {
			assert.True(t, d.Held)
			break
		}
	}
	code, body = r.get("/readyz")
	assert.Equal(t, http.StatusOK, code)
	assert.Contains(t, body, "damage: warning: file waits for a person to accept the damage")
	assert.Equal(t, "1", r.metric("auditrelay_journal_damage_held"))
	_, err := client.AcceptDamage(t.Context())
	require.NoError(t, err)
	r.arrived("before", "after")
	_, err = client.AcceptDamage(t.Context())
	require.ErrorContains(t, err, "no damage to be accepted")
	assert.Equal(t, "0", r.metric("auditrelay_journal_damage_held"))
	require.NoError(t, r.stop())
}

// A loss accepted by a command stands in the trail, once.
func TestAJournalThatWasLetGoIsAnEntry(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t.TempDir())
	r := start(t, cfg)
	r.push("before")
	r.arrived("before")
	require.NoError(t, r.stop())
	spoil(t, cfg, 1) // a record missing at the sink
	old := streamserver.Home{Prefix: cfg.Journal.StreamPrefix}
	cfg.Journal.StreamPrefix = "OTHER"
	require.NoError(t, streamserver.LetJournalGo(t.Context(), cfg.DataDir, cfg.Journal, old, slog.New(slog.DiscardHandler), func(streamserver.Left) error { return nil }))
	for range 2 {
		r = start(t, cfg)
		r.push("after")
		entries := 0
		for entries == 0 {
			for _, rec := range r.arrived("after") {
				if rec.Attributes["type"] == "journal.let_go" {
					entries++
				}
			}
		}
		assert.Equal(t, 1, entries)
		require.NoError(t, r.stop())
	}
}

// An orderly stop has drained the relay's journal.
func TestADrainedJournalMayBeLeft(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t.TempDir())
	for _, prefix := range []string{"FIRST", "SECOND", "FIRST"} {
		cfg.Journal.StreamPrefix = prefix
		r := start(t, cfg)
		code, body := r.push(prefix)
		require.Equal(t, http.StatusNoContent, code, body)
		r.arrived(prefix)
		require.NoError(t, r.stop())
	}
}
