package app

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/testbed/natstest"
	"github.com/auditrelay/auditrelay/internal/testbed/waiting"
)

// inCluster is a configuration of one of several relays on one cluster, with the same trail's
// key, sink and credentials.
func inCluster(dir, name, url string) *config.Config {
	cfg := testConfig(filepath.Join(dir, name))
	cfg.Journal.URL, cfg.Journal.Replicas, cfg.Journal.MaxBytes = url, 1, 64<<20
	cfg.Audit.KeyFile = filepath.Join(dir, "audit.key")
	cfg.Sinks[0].File.Path = filepath.Join(dir, "out", "events.jsonl")
	return cfg
}

// Of two relays on one cluster, the second stands by, and goes on where the first ended.
func TestASecondRelayStandsBy(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t, t.TempDir(), natstest.SyncAlways)
	dir := t.TempDir()
	first := start(t, inCluster(dir, "a", srv.ClientURL()))
	code, _ := first.push("one")
	require.Equal(t, http.StatusNoContent, code)
	first.arrived("one")

	cfg := inCluster(dir, "b", srv.ClientURL())
	cfg.Ingest.Listen, cfg.Admin.Listen = freeAddress(t), freeAddress(t)
	up := make(chan *running, 1)
	go func() { up <- start(t, cfg) }()
	waiting.Until(t, func() bool {
		return getStatus(t, "http://"+cfg.Admin.Listen+"/readyz") == http.StatusServiceUnavailable
	}, "the second relay does not start")
	waiting.Until(t, func() bool { return getStatus(t, "http://"+cfg.Ingest.Listen+"/") == http.StatusServiceUnavailable }, "it does not refuse pushes")
	code, _ = first.push("two")
	require.Equal(t, http.StatusNoContent, code, "the first relay goes on")
	first.arrived("one", "two")
	require.Empty(t, up, "the second one stands by")

	require.NoError(t, first.stop())
	second := <-up
	code, _ = second.push("three")
	require.Equal(t, http.StatusNoContent, code)
	second.arrived("one", "two", "three")
	require.NoError(t, second.stop())
}

// freeAddress is one that no other test of this package takes: they listen on 127.0.0.1.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.5:0")
	require.NoError(t, err)
	defer func() { assert.NoError(t, l.Close()) }()
	return l.Addr().String()
}

func getStatus(t *testing.T, url string) int {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	require.NoError(t, err)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0
	}
	_, err = io.Copy(io.Discard, resp.Body)
	require.NoError(t, errors.Join(err, resp.Body.Close()))
	return resp.StatusCode
}
