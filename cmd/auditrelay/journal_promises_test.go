package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/cmd/auditrelay/cli"
	"github.com/auditrelay/auditrelay/internal/testbed/natstest"
)

// Both checks ask the journal's servers for their guarantees: a stream acknowledged
// before anything is on disk fails them.
func TestChecksAskTheJournalsServers(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	srv := natstest.Run(t, filepath.Join(dir, "js"))
	file := filepath.Join(dir, "relay.yaml")
	require.NoError(t, os.WriteFile(file, []byte(strings.NewReplacer("DIR", dir, "SERVER", srv.Addr().String()).Replace(`
data_dir: DIR/data
journal: {url: "nats://SERVER", replicas: 1}
environments:
  - {project: shop, environment: live, credentials: [{username: push, password: push-horse-6-push-horse}]}
sinks:
  - name: archive
    file: {path: DIR/archive/events.jsonl}
`)), 0o600))
	run := func(args ...string) (int, string) {
		var out, errs bytes.Buffer
		code := cli.Program{}.Execute(t.Context(), append(args, "--config", file), &out, &errs)
		assert.Empty(t, errs.String())
		return code, out.String()
	}
	code, out := run("sinks", "check")
	assert.Equal(t, cli.ExitOK, code, out)
	assert.Regexp(t, `(?m)^\(journal\) +journal.replicas +warning: 1: there is one copy`, out)
	assert.Regexp(t, `(?m)^\(journal\) +sync_interval +warning: it could not be told.*sync_interval: always`, out)
	assert.Regexp(t, `(?m)^\(journal\) +result +ok$`, out)
	code, out = run("sinks", "check", "archive")
	assert.Equal(t, cli.ExitOK, code)
	assert.NotContains(t, out, "(journal)")
	code, out = run("config", "check", "--api")
	assert.Equal(t, cli.ExitOK, code, out)
	assert.Contains(t, out, "journal.replicas: 1: there is one copy")
	assert.NoDirExists(t, filepath.Join(dir, "data"))

	_, err := natstest.JetStream(t, srv).CreateStream(t.Context(), jetstream.StreamConfig{Name: "AUDITRELAY_EVENTS", Subjects: []string{"auditrelay.events"}, PersistMode: jetstream.AsyncPersistMode})
	require.NoError(t, err)
	for _, args := range [][]string{{"sinks", "check"}, {"config", "check", "--api"}, {"config", "check", "--api", "--json"}} {
		code, out = run(args...)
		assert.Equal(t, cli.ExitFailure, code, out)
		assert.Contains(t, out, "stream AUDITRELAY_EVENTS: has persist_mode async")
	}
	code, out = run("config", "check")
	assert.Equal(t, cli.ExitOK, code, out)

	natstest.Stop(srv)
	for _, args := range [][]string{{"sinks", "check"}, {"config", "check", "--api"}} {
		code, out = run(args...)
		assert.Equal(t, cli.ExitFailure, code, out)
		assert.Contains(t, out, "connect to the journal's NATS")
	}
}
