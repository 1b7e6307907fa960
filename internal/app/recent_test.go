package app

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/sinks/file"
)

const (
	duplicates = `auditrelay_ingest_duplicate_events_total{environment="live",project="acme"}`
	stored     = `auditrelay_ingest_events_total{environment="live",project="acme"}`
)

func TestWhatIsPushedAgainIsRecognisedAfterARestart(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t.TempDir())
	for _, c := range []struct {
		window             time.Duration
		stored, duplicates string
	}{
		{10 * time.Minute, "3", "0"}, // new
		{10 * time.Minute, "0", "3"},
		{-1, "3", "0"}, // the window is off
		{0, "3", "0"},
		{10 * time.Minute, "0", "3"},
	} {
		cfg.Journal.DuplicateWindow = c.window
		r := start(t, cfg)
		code, body := r.push("a", "b", "c")
		require.Equal(t, http.StatusNoContent, code, body)
		assert.Equal(t, c.stored, r.metric(stored))
		assert.Equal(t, c.duplicates, r.metric(duplicates))
		r.arrived("a", "b", "c")
		require.NoError(t, r.stop())
	}
	lines := 0
	for _, err := range file.Read(cfg.Sinks[0].File.Path) {
		require.NoError(t, err)
		lines++
	}
	assert.Equal(t, 9, lines)
}
