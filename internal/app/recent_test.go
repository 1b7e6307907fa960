package app

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/testbed/readback"
	"github.com/auditrelay/auditrelay/internal/testbed/waiting"
	"github.com/auditrelay/auditrelay/relay"
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
	pushed, entries := 0, map[string]int{}
	for rec, err := range readback.Records(cfg.Sinks[0].File.Path) {
		require.NoError(t, err)
		if rec.Attributes["source"] == relay.TrailSource {
			entries[rec.ID()]++
		} else {
			pushed++
		}
	}
	assert.Equal(t, 9, pushed)
	for id, times := range entries {
		assert.Equal(t, 1, times, "the trail's %s", id)
	}
}

// More events than a start reads before it listens are recognised a little later.
func TestOldEventsAreRecognisedOnceTheyAreReadBack(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t.TempDir())
	r := start(t, cfg)
	code, body := r.push("first")
	require.Equal(t, http.StatusNoContent, code, body)
	line := strings.Repeat("x", 200_000) // compresses well: the journal stays small
	for i := range eagerBytes/len(line)/10 + 1 {
		var values []string
		for n := range 10 {
			values = append(values, fmt.Sprintf(`["%d","%d %s"]`, time.Now().UnixNano(), 10*i+n, line))
		}
		code, body := r.pushLoki(`{"streams":[{"stream":{"app":"idp"},"values":[` + strings.Join(values, ",") + `]}]}`)
		require.Equal(t, http.StatusNoContent, code, body)
	}
	require.NoError(t, r.stop())

	r = start(t, cfg)
	waiting.Until(t, func() bool { return r.metric("auditrelay_ingest_duplicates_known") == "1" })
	code, body = r.push("first")
	require.Equal(t, http.StatusNoContent, code, body)
	assert.Equal(t, "1", r.metric(duplicates))
	require.NoError(t, r.stop())
}
