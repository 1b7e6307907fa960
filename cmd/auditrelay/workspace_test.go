package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/cmd/auditrelay/cli"
	"github.com/auditrelay/auditrelay/internal/testbed/readback"
	"github.com/auditrelay/auditrelay/internal/testbed/waiting"
	"github.com/auditrelay/auditrelay/internal/testbed/workspacesim"
)

// A person acts on the workspace, and the relay is killed between an intent and its
// outcome: the trail tells all of it, and the next start ends what was left open.
func TestActionsOnTheWorkspace(t *testing.T) {
	t.Parallel()
	o := newOffice(t, "")
	relay := o.start(t)
	assert.Contains(t, o.run(t, cli.ExitOK, "password-config", "get", o.name), "check_breach_on_creation")
	assert.Contains(t, o.run(t, cli.ExitOK, "rbac", "get", o.name, "--output", "yaml"), "custom_roles:")
	assert.Contains(t, o.run(t, cli.ExitOK, "templates", "list", o.env.Project), "TEMPLATE_ID")
	var codes struct {
		RequestID string `json:"request_id"`
		Status    int
		Result    []string
	}
	require.NoError(t, json.Unmarshal([]byte(o.run(t, cli.ExitOK, "country-codes", "get", o.name, "-o", "json")), &codes))
	assert.NotEmpty(t, codes.RequestID)
	assert.Equal(t, 200, codes.Status)
	assert.Equal(t, "["+strings.Join(codes.Result, ", ")+"]\n", o.run(t, cli.ExitOK, "country-codes", "get", o.name))
	assert.Regexp(t, `^\S+\n$`, o.run(t, cli.ExitOK, "templates", "default", "get", o.env.Project, "LOGIN"), "no blanks before it")

	rename := []string{"project", "rename", o.env.Project, "Mine", "--reason", "CHG-1"}
	assert.Contains(t, o.run(t, cli.ExitOK, append(rename, "--dry-run")...), `→ "Mine"`)
	assert.Contains(t, o.run(t, cli.ExitFailure, rename...), "give --yes")
	o.run(t, cli.ExitUsage, "project", "rename", o.env.Project)
	o.run(t, cli.ExitUsage, "rbac", "get", o.env.Project)
	assert.Contains(t, o.run(t, cli.ExitUsage, "secret", "delete", o.name, "s-1", "--yes"), "--yes needs --reason")
	assert.Contains(t, o.run(t, cli.ExitUsage, "secret", "delete", o.name, "s-1", "--yes", "--reason", " "), "--yes needs --reason")
	assert.Contains(t, o.run(t, cli.ExitUsage, "redirect-urls", "set-types", o.name, o.env.RedirectURLs[0], "--dry-run"), "it needs types", "the relay finds it wrong")
	assert.Contains(t, o.run(t, cli.ExitUsage, "streaming", "set", o.name, "DATADOG", "--secret-file", "/etc/hostname", "--dry-run"), "DATADOG takes a site")
	assert.Contains(t, o.run(t, cli.ExitFailure, "project", "get", "none"), "; see http", "the API's page about the error")
	require.Zero(t, o.writes.Load())
	o.told(t, "settings.baseline", `"subject":"project"`)
	done := o.run(t, cli.ExitOK, append(rename, "--yes")...)
	_, action, _ := strings.Cut(done, "done: action ")
	action, _, _ = strings.Cut(action, ",")
	require.NotEmpty(t, action, done)
	o.told(t, "settings.changed", `"subject":"project"`, `"cause":"relay"`, `"action":"`+action+`"`)

	o.held.Store(true)
	asked := exec.Command("auditrelay", "workspace", "secret", "delete", o.name, o.env.Secrets[0], "--yes", "--reason", "leaked", "--config", o.config)
	var said bytes.Buffer
	asked.Stderr = &said
	require.NoError(t, asked.Start())
	waiting.Until(t, func() bool { return o.writes.Load() == 2 }, "the API is not asked")
	require.NoError(t, relay.Process.Kill())
	_ = relay.Wait()
	require.Error(t, asked.Wait())
	o.held.Store(false)
	o.start(t)
	o.told(t, "action.ended", `"outcome":"unknown"`, "secret.delete")
	o.told(t, "action.ended", `"outcome":"done"`, "project.rename", "CHG-1")
	o.told(t, "action.intended", "project.rename", `"user":`)
}

// The relay is killed while the answer to its own PUT is on the way. The next start ends
// the intent, sets nothing again, and names the relay's action that made the change.
func TestAKilledPutIsTheRelays(t *testing.T) {
	t.Parallel()
	o := newOffice(t, ", stream: {grafana_loki: {hostname: loki.example.com, username: u, password: a-password-0001}}")
	o.taken.Store(true)
	relay := o.start(t)
	waiting.Until(t, func() bool { return o.writes.Load() == 1 }, "the API is not asked")
	require.NoError(t, relay.Process.Kill())
	_ = relay.Wait()
	o.taken.Store(false)
	o.start(t)
	intent := o.told(t, "streaming.put_intended", `"reason":["destination_type"]`)
	_, action, _ := strings.Cut(intent, `"action":"`)
	action, _, _ = strings.Cut(action, `"`)
	require.NotEmpty(t, action, intent)
	o.told(t, "streaming.put_ended", `"outcome":"unknown"`, action)
	o.told(t, "streaming.changed", `"cause":"relay"`, `"action":"`+action+`"`)
	require.EqualValues(t, 1, o.writes.Load())
}

// office is a relay's configuration with one environment of the simulator.
type office struct {
	sim          *workspacesim.Simulator
	env          workspacesim.Environment
	name, config string
	admin        string // its address
	api          string // the simulator's address
	sink         *readback.File
	writes       atomic.Int32 // requests to the API other than GET
	held         atomic.Bool  // they get no answer, and have no effect
	taken        atomic.Bool  // they get no answer, and have their effect
	output       bytes.Buffer
}

// newOffice makes one. stream is a part of the environment in the configuration.
func newOffice(t *testing.T, stream string) *office {
	t.Helper()
	sim, err := workspacesim.New(workspacesim.Options{Projects: 1})
	require.NoError(t, err)
	dir := t.TempDir()
	o := &office{sim: sim, env: sim.Environments()[0], config: filepath.Join(dir, "relay.yaml"), sink: &readback.File{Path: filepath.Join(dir, "events.jsonl")}}
	o.name, o.admin = o.env.Project+"/"+o.env.Environment, freeAddress(t)
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet {
			if o.taken.Load() {
				sim.Handler().ServeHTTP(httptest.NewRecorder(), r)
			}
			o.writes.Add(1)
			if o.held.Load() || o.taken.Load() {
				<-r.Context().Done()
				return
			}
		}
		sim.Handler().ServeHTTP(w, r)
	}))
	t.Cleanup(func() { api.Close(); sim.Stop() })
	o.api = api.URL
	text := fmt.Sprintf(`data_dir: %s
workspace: {base_url: "%s", key_id: %s, secret: "${SIM_SECRET}", requests_per_second: 1000}
ingest: {listen: "%s"}
admin: {listen: "%s"}
settings: {interval: 300ms}
sinks: [{name: file, file: {path: %s, rotate_bytes: -1}}]
environments: [{project: %s, environment: %s%s}]
`, filepath.Join(dir, "data"), api.URL, workspacesim.DemoKeyID, freeAddress(t), o.admin, o.sink.Path, o.env.Project, o.env.Environment, stream)
	require.NoError(t, os.WriteFile(o.config, []byte(text), 0o600))
	return o
}

// start starts a relay, and waits until people can act.
func (o *office) start(t *testing.T) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("auditrelay", "run", "--config", o.config)
	cmd.Env = append(os.Environ(), "SIM_SECRET="+workspacesim.DemoSecret)
	cmd.Stdout, cmd.Stderr = &o.output, &o.output
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	waiting.Until(t, func() bool {
		out, err := exec.CommandContext(t.Context(), "auditrelay", "workspace", "project", "get", o.env.Project, "--config", o.config).Output()
		return err == nil && strings.Contains(string(out), "vertical")
	}, "nobody can act")
	return cmd
}

func (o *office) run(t *testing.T, exit int, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "auditrelay", append(append([]string{"workspace"}, args...), "--config", o.config)...)
	out, _ := cmd.CombinedOutput()
	require.Equal(t, exit, cmd.ProcessState.ExitCode(), "%v: %s", args, out)
	return string(out)
}

// told waits for an entry of that type with those texts at the sink, and returns its line.
func (o *office) told(t *testing.T, parts ...string) (found string) {
	t.Helper()
	waiting.Until(t, func() bool {
		text, err := os.ReadFile(o.sink.Path)
		for line := range strings.Lines(string(text)) {
			all := true
			for _, part := range parts {
				all = all && strings.Contains(line, part)
			}
			if all {
				found = line
			}
		}
		return err == nil && found != ""
	}, "the sink was not told of %v", parts)
	return found
}
