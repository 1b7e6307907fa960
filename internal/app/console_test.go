package app

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/control/console"
	"github.com/auditrelay/auditrelay/internal/testbed/readback"
	"github.com/auditrelay/auditrelay/relay"
)

// A replay to a file shares the live sink: a second writer would take the
// other's half-written lines for torn ones.
func TestAReplayToAFileBesideLiveDelivery(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t.TempDir())
	r := start(t, cfg)
	client := console.NewClient(cfg.DataDir)
	var ids []string
	push := func() {
		ids = append(ids, fmt.Sprintf("e%d", len(ids)))
		code, body := r.push(ids[len(ids)-1])
		require.Equal(t, http.StatusNoContent, code, body)
	}
	for range 20 {
		push()
	}
	until := time.Now()
	ended := make(chan error, 1)
	go func() {
		var err error
		for i := 0; i < 10 && err == nil; i++ {
			err = client.ReplaySpan(t.Context(), console.ReplaySpan{Sink: "file", Until: until}, func(*console.Progress) {})
		}
		ended <- err
	}()
	for range 100 {
		push()
	}
	require.NoError(t, <-ended)
	r.arrived(ids...)
	require.NoError(t, r.stop())
	counts, entries := map[string]int{}, map[string]int{}
	for rec, err := range readback.Records(r.path) {
		require.NoError(t, err)
		if rec.Attributes["source"] == relay.TrailSource {
			entries[rec.ID()]++
		} else {
			counts[rec.ID()]++
		}
	}
	assert.Len(t, counts, 120)
	for id, times := range entries {
		assert.Contains(t, []int{1, 11}, times, "the trail's %s arrived before the span's end, or after it", id)
	}
	for i, id := range ids {
		if i < 20 {
			assert.Equal(t, 11, counts[id], id)
		} else {
			assert.Equal(t, 1, counts[id], id)
		}
	}
	_, err := client.Sinks(t.Context())
	require.ErrorContains(t, err, "no relay runs", "the console goes with the relay")
}
