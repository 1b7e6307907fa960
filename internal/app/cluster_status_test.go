package app

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/testbed/natstest"
	"github.com/auditrelay/auditrelay/internal/testbed/rig"
	"github.com/auditrelay/auditrelay/internal/testbed/waiting"
)

// clusterAt asks a relay for the section of /status; it is empty where there was no answer.
func clusterAt(t *testing.T, address, dataDir string) (s ClusterStatus) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+"/status", http.NoBody)
	require.NoError(t, err)
	rig.ShowToken(req, dataDir)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return s
	}
	var sections struct{ Cluster ClusterStatus }
	if resp.StatusCode == http.StatusOK {
		require.NoError(t, json.NewDecoder(resp.Body).Decode(&sections))
	}
	require.NoError(t, resp.Body.Close())
	return sections.Cluster
}

// Each relay of a cluster says who does which job, also one that has none.
func TestEachRelayKnowsTheCluster(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t, t.TempDir(), natstest.SyncAlways)
	dir := t.TempDir()
	firstOf, secondOf := inCluster(dir, "a", srv.ClientURL(), "file"), inCluster(dir, "b", srv.ClientURL(), "file")
	secondOf.Ingest.Listen, secondOf.Admin.Listen = freeAddress(t), freeAddress(t)
	first := start(t, firstOf)
	code, _ := first.push("one")
	require.Equal(t, http.StatusNoContent, code)
	first.arrived("one")
	up := make(chan *running, 1)
	go func() { up <- start(t, secondOf) }()

	var here, there ClusterStatus
	waiting.Until(t, func() bool {
		here, there = clusterAt(t, first.Admin, firstOf.DataDir), clusterAt(t, secondOf.Admin.Listen, secondOf.DataDir)
		for _, job := range here.Jobs {
			if job.Epoch > 0 && job.Holder == "" {
				return false // it moves
			}
		}
		return len(here.Jobs) > 0 && len(here.Relays) == 2 && len(there.Relays) == 2
	}, "the relays do not know each other")
	assert.NotEqual(t, here.This, there.This)
	for _, this := range []string{here.This, there.This} {
		assert.True(t, here.Relays[0].Name == this || here.Relays[1].Name == this, this)
	}
	assert.False(t, here.Relays[0].Heartbeat.IsZero())
	position := here.jobOf(sinkJobOf(firstOf.Sinks[0].Name, 0)).Position
	require.NotNil(t, position)
	assert.Positive(t, position.Acknowledged)
	text, families := first.scrape()
	assert.Len(t, families["auditrelay_cluster_job_held"].GetMetric(), len(families["auditrelay_cluster_job_epoch"].GetMetric()))
	assert.Contains(t, text, "auditrelay_cluster_relays 2")

	require.NoError(t, first.stop())
	second := <-up
	waiting.Until(t, func() bool {
		there = clusterAt(t, second.Admin, secondOf.DataDir)
		for _, job := range there.Jobs {
			if job.Epoch > 0 && job.Holder != there.This {
				return false
			}
		}
		return len(there.Relays) == 1
	}, "the second relay does not say that it does all")
	require.NoError(t, second.stop())
}

// Without a cluster there is one relay, and the section says how far its sinks are.
func TestOneRelayOnADiskHasNoCluster(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t.TempDir())
	r := start(t, cfg)
	code, _ := r.push("one")
	require.Equal(t, http.StatusNoContent, code)
	r.arrived("one")
	s := clusterAt(t, r.Admin, cfg.DataDir)
	assert.Empty(t, s.This)
	assert.Empty(t, s.Relays)
	require.Len(t, s.Jobs, 1)
	assert.Equal(t, sinkJob+cfg.Sinks[0].Name, s.Jobs[0].Name)
	assert.NotNil(t, s.Jobs[0].Position)
	require.NoError(t, r.stop())
}
