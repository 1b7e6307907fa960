package app

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/control/console"
	"github.com/auditrelay/auditrelay/internal/journal"
	"github.com/auditrelay/auditrelay/internal/store"
	"github.com/auditrelay/auditrelay/internal/testbed/journaltest"
)

// spoil puts undecodable records into a stopped relay's journal.
func spoil(t *testing.T, cfg *config.Config, n int) {
	t.Helper()
	j := journaltest.Open(t, cfg.DataDir, cfg.Journal, journaltest.Options{})
	events, err := j.Store.Log(t.Context(), journal.EventsLog, store.Options{})
	require.NoError(t, err)
	for i := range n {
		_, err := events.Append(t.Context(), store.Draft{Kind: 1, Key: "1", Data: fmt.Appendf(nil, "spoilt record %d", i)})
		require.NoError(t, err)
	}
	j.Shut()
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
