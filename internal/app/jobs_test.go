package app

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/control/console"
	"github.com/auditrelay/auditrelay/internal/testbed/natstest"
	"github.com/auditrelay/auditrelay/internal/testbed/readback"
	"github.com/auditrelay/auditrelay/internal/testbed/waiting"
	"github.com/auditrelay/auditrelay/relay"
)

// inCluster is a configuration of one of several relays on one cluster, with the same trail's
// key, sinks and credentials.
func inCluster(dir, name, url string, sinks ...string) *config.Config {
	cfg := testConfig(filepath.Join(dir, name))
	cfg.Journal.URL, cfg.Journal.Replicas, cfg.Journal.MaxBytes = url, 1, 64<<20
	cfg.Audit.KeyFile = filepath.Join(dir, "audit.key")
	cfg.Sinks = nil
	for _, sink := range sinks {
		cfg.Sinks = append(cfg.Sinks, config.Sink{Name: sink, File: &config.File{Path: outOf(dir, sink)}})
	}
	cfg.SetDefaults()
	return cfg
}

func outOf(dir, sink string) string { return filepath.Join(dir, "out", sink+".jsonl") }

// jobs are what a relay says that it does.
func (r *running) jobs() []string {
	r.t.Helper()
	code, body := r.get("/status")
	require.Equal(r.t, http.StatusOK, code)
	var status struct {
		Cluster struct {
			Doing []string `json:"doing"`
		} `json:"cluster"`
	}
	require.NoError(r.t, json.Unmarshal([]byte(body), &status))
	return status.Cluster.Doing
}

// counted is how often each pushed event stands in a file.
func counted(path string) map[string]int {
	all := map[string]int{}
	for rec, err := range readback.Records(path) {
		if err == nil && rec.Attributes["source"] != relay.TrailSource {
			all[rec.ID()]++
		}
	}
	return all
}

// Of several relays on one cluster each takes pushes, and each job is done by one. Who leaves
// gives its jobs to the others, and no event arrives twice.
func TestRelaysShareTheWork(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t, t.TempDir(), natstest.SyncAlways)
	dir, sinks := t.TempDir(), []string{"one", "two", "three"}
	first := start(t, inCluster(dir, "a", srv.ClientURL(), sinks...))
	all := []string{"control", "sink/one", "sink/three", "sink/two"}
	waiting.Until(t, func() bool { return slices.Equal(all, first.jobs()) }, "a lone relay does not do all")
	second := start(t, inCluster(dir, "b", srv.ClientURL(), sinks...))
	waiting.Until(t, func() bool { return len(first.jobs()) == 2 && len(second.jobs()) == 2 }, "the jobs are not shared evenly")
	assert.Contains(t, first.jobs(), "control", "it is never moved for balance")
	assert.ElementsMatch(t, all, append(first.jobs(), second.jobs()...))

	var want []string
	push := func(n int, relays ...*running) {
		for i := range n {
			id := fmt.Sprintf("e%d", len(want))
			code, body := relays[i%len(relays)].push(id)
			require.Equal(t, http.StatusNoContent, code, body)
			want = append(want, id)
		}
	}
	arrive := func() {
		t.Helper()
		for _, sink := range sinks {
			waiting.Until(t, func() bool { return len(counted(outOf(dir, sink))) == len(want) }, "events are missing at "+sink)
		}
	}
	_, err := console.NewClient(second.data).Sinks(t.Context())
	require.ErrorContains(t, err, "another relay of the cluster has the job 'control'")
	push(20, first, second)
	arrive()
	for _, r := range []*running{first, second} {
		code, body := r.get("/readyz")
		assert.Equal(t, http.StatusOK, code, body)
		assert.Contains(t, body, "this relay takes pushes, and does ")
	}

	require.NoError(t, second.stop())
	waiting.Until(t, func() bool { return slices.Equal(all, first.jobs()) }, "who leaves does not give its jobs away")
	push(10, first)
	arrive()
	third := start(t, inCluster(dir, "c", srv.ClientURL(), sinks...))
	waiting.Until(t, func() bool { return len(third.jobs()) == 2 })
	push(10, first, third)
	require.NoError(t, first.stop())
	waiting.Until(t, func() bool { return slices.Equal(all, third.jobs()) }, "control was not taken over")
	push(10, third)
	arrive()
	require.NoError(t, third.stop())
	for _, sink := range sinks {
		for id, n := range counted(outOf(dir, sink)) {
			assert.Equal(t, 1, n, "%s at %s", id, sink)
		}
		for rec, err := range readback.Records(outOf(dir, sink)) {
			require.NoError(t, err)
			assert.NotContains(t, []string{"journal.quarantined", "trail.damaged", "trail.generation"}, rec.Attributes["type"])
		}
	}
}

// The health of an environment is judged by what all relays take.
func TestPushesToAnotherRelayAreNoSilence(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t, t.TempDir(), natstest.SyncAlways)
	dir := t.TempDir()
	first := start(t, inCluster(dir, "a", srv.ClientURL(), "one"))
	waiting.Until(t, func() bool { return slices.Contains(first.jobs(), "control") })
	second := start(t, inCluster(dir, "b", srv.ClientURL(), "one"))
	code, body := second.push("x", "y")
	require.Equal(t, http.StatusNoContent, code, body)
	const arrived = `"state": "flowing"`
	waiting.Until(t, func() bool { _, body := first.get("/status"); return strings.Contains(body, arrived) }, "the relay that judges knows nothing of the push")
	const events = `auditrelay_ingest_events_total{environment="live",project="acme"}`
	assert.Equal(t, "0", first.metric(events))
	assert.Equal(t, "2", second.metric(events))
	code, body = first.push("x", "y")
	require.Equal(t, http.StatusNoContent, code, body)
	assert.Equal(t, "0", first.metric(events), "a repeated push is recognised wherever it comes")
	require.NoError(t, errors.Join(second.stop(), first.stop()))
}

// freeAddress is one that no other test of this package takes: they listen on 127.0.0.1.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.5:0")
	require.NoError(t, err)
	defer func() { assert.NoError(t, l.Close()) }()
	return l.Addr().String()
}

// A push that is under way holds up no job of a relay that leaves: another relay has all of them
// before the push has been answered, and it is.
func TestALeaveWaitsForNoPush(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t, t.TempDir(), natstest.SyncAlways)
	dir := t.TempDir()
	first := start(t, inCluster(dir, "a", srv.ClientURL(), "one"))
	all := []string{"control", "sink/one"}
	waiting.Until(t, func() bool { return slices.Equal(all, first.jobs()) })
	second := start(t, inCluster(dir, "b", srv.ClientURL(), "one"))
	waiting.Until(t, func() bool { return slices.Equal(all[1:], second.jobs()) })

	const body = `{"streams":[{"stream":{"app":"idp"},"values":[["1700000000000000000","{}"]]}]}`
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", first.Ingest)
	require.NoError(t, err)
	defer func() { _ = conn.Close() }()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+first.Ingest+"/loki/api/v1/push", http.NoBody)
	require.NoError(t, err)
	req.SetBasicAuth("u", "a-password-of-some-length")
	_, err = fmt.Fprintf(conn, "POST /loki/api/v1/push HTTP/1.1\r\nHost: relay\r\nAuthorization: %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\nExpect: 100-continue\r\n\r\n",
		req.Header.Get("Authorization"), len(body))
	require.NoError(t, err)
	answers := bufio.NewReader(conn)
	resp, err := http.ReadResponse(answers, req)
	require.NoError(t, err)
	require.Equal(t, http.StatusContinue, resp.StatusCode, "the push is under way")
	require.NoError(t, resp.Body.Close())
	stopped := make(chan error, 1)
	go func() { stopped <- first.stop() }()
	waiting.Until(t, func() bool { return slices.Equal(all, second.jobs()) }, "control was not given away")
	_, err = io.WriteString(conn, body)
	require.NoError(t, err)
	resp, err = http.ReadResponse(answers, req)
	require.NoError(t, err, "the push is answered all the same")
	assert.Equal(t, http.StatusNoContent, resp.StatusCode)
	require.NoError(t, errors.Join(resp.Body.Close(), <-stopped, second.stop()))
}

// A relay takes over control while a reload that was asked for at its console waits until it has.
func TestARelayTakesControlDuringAReload(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t, t.TempDir(), natstest.SyncAlways)
	dir := t.TempDir()
	first, cfg := start(t, inCluster(dir, "a", srv.ClientURL(), "one")), inCluster(dir, "b", srv.ClientURL(), "one")
	second := startReloadable(t, cfg)
	second.process.control.starting.Lock() // as if the trail were long
	require.NoError(t, first.stop())
	waiting.Until(t, func() bool { return slices.Contains(second.jobs(), controlJob) }, "it does not take control")
	second.edit(cfg, func(c *config.Config) { c.Environments[0].Quota.EventsPerSecond = 100 })
	reloaded := make(chan struct{})
	go func() {
		defer close(reloaded)
		_, _ = second.reload()
	}()
	waiting.Until(t, func() bool { return second.process.cfg().Environments[0].Quota.EventsPerSecond == 100 })
	second.process.control.starting.Unlock()
	<-reloaded // it was applied, or broken off
	waiting.Until(t, func() bool {
		_, err := second.client.Sinks(t.Context())
		return err == nil
	}, "it has control, and does not answer")
	require.NoError(t, second.stop())
}

// Whoever asks a relay while it takes over control is answered: at once what it can say without, and all
// else as soon as it has control.
func TestWhoeverAsksDuringATakeoverIsAnswered(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t, t.TempDir(), natstest.SyncAlways)
	dir := t.TempDir()
	first := start(t, inCluster(dir, "a", srv.ClientURL(), "one"))
	second := start(t, inCluster(dir, "b", srv.ClientURL(), "one"))
	client := console.NewClient(second.data)
	_, err := client.Sinks(t.Context())
	require.ErrorContains(t, err, "another relay of the cluster has the job 'control'")
	second.process.control.starting.Lock() // as if the trail were long
	require.NoError(t, first.stop())
	waiting.Until(t, func() bool { return slices.Contains(second.jobs(), controlJob) }, "it does not take control")
	answered := make(chan error, 2)
	go func() {
		_, err := client.Sinks(t.Context())
		answered <- err
	}()
	taken := make(chan struct{})
	go func() {
		var failed error
		for done := false; !done && failed == nil; {
			select {
			case <-taken:
				done = true
			default:
				_, failed = client.Status(t.Context(), console.AskStatus{Sections: []string{"cluster"}})
			}
		}
		answered <- failed
	}()
	second.process.control.starting.Unlock()
	require.NoError(t, <-answered)
	close(taken)
	require.NoError(t, <-answered)
	require.NoError(t, second.stop())
}
