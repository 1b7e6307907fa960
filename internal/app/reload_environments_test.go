package app

import (
	"encoding/json"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/config/secret"
	"github.com/auditrelay/auditrelay/internal/control/console"
	"github.com/auditrelay/auditrelay/internal/testbed/waiting"
	"github.com/auditrelay/auditrelay/internal/testbed/workspacesim"
)

// section reads a section of /status.
func (r *running) section(name string, into any) {
	r.t.Helper()
	code, body := r.get("/status")
	require.Equal(r.t, 200, code)
	all := map[string]json.RawMessage{}
	require.NoError(r.t, json.Unmarshal([]byte(body), &all))
	if all[name] != nil {
		require.NoError(r.t, json.Unmarshal(all[name], into))
	}
}

type shownEnvironment struct {
	Project, Environment, State, Reason string
	Gaps                                []json.RawMessage `json:"gaps"`
}

func (r *running) environmentsShown() map[string]shownEnvironment {
	r.t.Helper()
	var list []shownEnvironment
	r.section("environments", &list)
	all := map[string]shownEnvironment{}
	for _, e := range list {
		all[e.Project+"/"+e.Environment] = e
	}
	return all
}

// Environments come, change and go: their credentials, their quotas, their health and silences. What
// is known of one that stays is not forgotten.
func TestReloadOfEnvironments(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t.TempDir())
	r := startReloadable(t, cfg)
	const first, second, password = "a-password-of-some-length", "another-password-of-some-length", "the-password-of-the-new-one"
	require.Equal(t, 204, r.pushAs("u", first, 1))
	require.Equal(t, 401, r.pushAs("u2", password, 1))
	waiting.Until(t, func() bool { return r.environmentsShown()["acme/live"].State == "flowing" }, "%+v", r.environmentsShown())

	r.mustReload(cfg, func(c *config.Config) {
		c.Environments[0].Credentials = []config.Credential{{Username: "u", Password: secret.New(second)}}
		c.Environments = append(c.Environments, config.Environment{
			Project: "acme", Environment: "new", Credentials: []config.Credential{{Username: "u2", Password: secret.New(password)}},
			Quota: config.Quota{EventsPerSecond: 0.01},
		})
	})
	assert.Equal(t, 401, r.pushAs("u", first, 1), "a credential that is gone is refused from now on")
	assert.Equal(t, 204, r.pushAs("u", second, 1))
	assert.Equal(t, 204, r.pushAs("u2", password, 1))
	assert.Equal(t, 429, r.pushAs("u2", password, 1), "the quota counts")
	shown := r.environmentsShown()
	assert.Equal(t, "flowing", shown["acme/live"].State)
	assert.Empty(t, shown["acme/live"].Gaps, "a reload is no outage")
	assert.Contains(t, shown, "acme/new")
	_, err := r.client.AddSilence(t.Context(), console.AddSilence{Project: "acme", Environment: "new", For: 600, Reason: "test"})
	require.NoError(t, err)

	r.mustReload(cfg, func(*config.Config) {})
	assert.Equal(t, 204, r.pushAs("u", first, 1))
	assert.Equal(t, 401, r.pushAs("u2", password, 1))
	assert.NotContains(t, r.environmentsShown(), "acme/new")
	_, metrics := r.get("/metrics")
	assert.NotContains(t, metrics, `environment="new"`)
	require.NoError(t, r.stop())
}

// The workspace's key changes, and what asks the workspace goes on with the new one.
func TestReloadOfTheWorkspacesKey(t *testing.T) {
	t.Parallel()
	sim, err := workspacesim.New(workspacesim.Options{Projects: 1})
	require.NoError(t, err)
	api := httptest.NewServer(sim.Handler())
	defer api.Close()
	cfg := testConfig(t.TempDir())
	e := sim.Environments()[0]
	cfg.Environments[0].Project, cfg.Environments[0].Environment = e.Project, e.Environment
	cfg.Environments[0].Stream = &config.Stream{Relay: &config.StreamRelay{Hostname: "localhost:3100"}}
	cfg.Workspace = &config.Workspace{BaseURL: api.URL, KeyID: workspacesim.DemoKeyID, Secret: secret.New("a-key-that-was-revoked"), RequestsPerSecond: 1000}
	cfg.SetDefaults()
	cfg.Streaming.Interval, cfg.Settings.Disabled = time.Hour, true
	r := startReloadable(t, cfg)
	type reach struct {
		Cause string `json:"cause"`
		Known bool   `json:"known"`
	}
	asked := func() (now reach) { r.section("workspace", &now); return now }
	waiting.Until(t, func() bool { return asked().Cause == "unauthorized" })

	r.mustReload(cfg, func(c *config.Config) {
		workspace := *cfg.Workspace
		workspace.Secret = secret.New(workspacesim.DemoSecret)
		c.Workspace = &workspace
	})
	waiting.Until(t, func() bool {
		list, err := r.client.Streaming(t.Context())
		return err == nil && len(list) == 1 && asked().Cause == "" && r.metric("auditrelay_workspace_requests_per_second_limit") == "1000"
	})
	waiting.Until(t, func() bool {
		list, err := r.client.Credentials(t.Context())
		return err == nil && len(list) > 2
	}, "the streaming config is set with a generated credential")

	r.mustReload(cfg, func(c *config.Config) {
		c.Workspace = nil
		c.Environments[0].Stream = nil
	})
	assert.Equal(t, "no such metric", r.metric("auditrelay_workspace_requests_per_second_limit"))
	_, status := r.get("/status")
	assert.NotContains(t, status, `"workspace":`)
	_, err = r.client.Streaming(t.Context())
	require.ErrorContains(t, err, "no workspace section")
	r.mustPush("one")
	r.arrived("one")
	require.NoError(t, r.stop())
}
