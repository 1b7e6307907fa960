package app

import (
	"context"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/testbed/natstest"
	"github.com/auditrelay/auditrelay/internal/testbed/waiting"
)

// TestMain lets the test's binary be a node of a cluster, or a relay.
func TestMain(m *testing.M) {
	if spec := os.Getenv(relayVariable); spec != "" {
		os.Exit(beRelay(spec))
	}
	natstest.Main(m)
}

// A relay may start before its journal's cluster is whole, and outlives a restart of the
// whole cluster.
func TestARelayWaitsForItsCluster(t *testing.T) {
	t.Parallel()
	n, err := natstest.StartCluster(t.Context(), natstest.Options{Command: natstest.Self(t), Dir: t.TempDir()})
	require.NoError(t, err)
	t.Cleanup(n.Close)
	for i := range n.Len() {
		n.Kill(i)
	}
	comesUp := make(chan error, 1)
	restart := func(from int) {
		for i := from; i < n.Len(); i++ {
			if err := n.Restart(context.Background(), i); err != nil {
				comesUp <- err
				return
			}
		}
		comesUp <- nil
	}
	require.NoError(t, n.Restart(t.Context(), 0))      // answers, and has no quorum
	time.AfterFunc(time.Second, func() { restart(1) }) // while the relay starts

	cfg := testConfig(t.TempDir())
	cfg.Journal.URL, cfg.Journal.Replicas, cfg.Journal.MaxBytes = n.URL, 3, 64<<20
	r := start(t, cfg)
	require.NoError(t, <-comesUp)
	push := func(id string) {
		t.Helper()
		waiting.Until(t, func() bool {
			code, _ := r.push(id)
			return code == http.StatusNoContent
		}, "pushes are not taken")
	}
	push("before")
	r.arrived("before")

	for i := range n.Len() {
		n.Kill(i)
	}
	code, _ := r.push("refused")
	assert.Equal(t, http.StatusServiceUnavailable, code)
	restart(0)
	require.NoError(t, <-comesUp)
	push("after")
	r.arrived("before", "after")
	require.NoError(t, r.stop())
}
