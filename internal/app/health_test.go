package app

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/config/secret"
	"github.com/auditrelay/auditrelay/internal/health"
	"github.com/auditrelay/auditrelay/internal/testbed/waiting"
	"github.com/auditrelay/auditrelay/internal/testbed/workspacesim"
)

// health reads the section environments of /status.
func (r *running) health() []health.Status {
	r.t.Helper()
	code, body := r.get("/status")
	require.Equal(r.t, http.StatusOK, code)
	var status struct{ Environments []health.Status }
	require.NoError(r.t, json.Unmarshal([]byte(body), &status))
	return status.Environments
}

// TestASecretChangedByHandIsReported: the API shows the same last four, and ACTIVE, for ever.
func TestASecretChangedByHandIsReported(t *testing.T) {
	t.Parallel()
	sim, err := workspacesim.New(workspacesim.Options{Projects: 1, Rate: 50})
	require.NoError(t, err)
	api := httptest.NewServer(sim.Handler())
	defer api.Close()
	env := sim.Environments()[0]
	cfg := testConfig(t.TempDir())
	cfg.Workspace = &config.Workspace{BaseURL: api.URL, KeyID: workspacesim.DemoKeyID, Secret: secret.New(workspacesim.DemoSecret), RequestsPerSecond: 1000}
	cfg.Environments[0].Project, cfg.Environments[0].Environment, cfg.Environments[0].SkipSettings = env.Project, env.Environment, true
	cfg.Environments[0].Stream = &config.Stream{Observe: true}
	cfg.SetDefaults()
	cfg.Streaming.Interval = 100 * time.Millisecond
	r := start(t, cfg)
	defer func() { require.NoError(t, r.stop()) }()
	require.NoError(t, sim.CreateStreaming(env.Project, env.Environment, "GRAFANA_LOKI",
		fmt.Appendf(nil, `{"grafana_loki":{"hostname":%q,"username":"u","password":"a-password-of-some-length"}}`, r.Ingest)))
	sim.Start(t.Context())
	defer sim.Stop()
	waiting.Until(t, func() bool { return r.health()[0].State == health.Flowing }, "it flows")
	assert.Empty(t, auditTypes(r, "health.changed"), "a first start is no news")

	require.NoError(t, sim.EditStreaming(env.Project, env.Environment, workspacesim.StreamingEdit{SameLastFour: true}))
	var now health.Status
	waiting.Until(t, func() bool { now = r.health()[0]; return now.State == health.Refused }, "it is refused")
	assert.Contains(t, now.Reason, "the credential is not valid")
	assert.Contains(t, now.Action, "set the configured password of "+env.Project+"/"+env.Environment)
	assert.Equal(t, "ACTIVE", string(now.Declared.Status), "the API sees nothing wrong")
	assert.Positive(t, now.Observed.Refusals["credential"].Count)
	require.NotNil(t, now.Gap)
	assert.Equal(t, now.Gap.Begun, now.Observed.Refusals["credential"].First)
	labels := fmt.Sprintf("{environment=%q,project=%q", env.Environment, env.Project)
	assert.Equal(t, "1", r.metric("auditrelay_environment_state"+labels+`,state="refused"}`))
	assert.Equal(t, "0", r.metric("auditrelay_environment_state"+labels+`,state="flowing"}`))
	waiting.Until(t, func() bool { return len(auditTypes(r, "health.changed")) == 1 }, "the sinks get it")
	assert.Contains(t, auditTypes(r, "health.changed")[0], env.Environment+": event log is refused since 20")
}

// auditTypes gives the bodies of the audit events of a type at the file sink.
func auditTypes(r *running, kind string) (bodies []string) {
	for _, e := range auditEvents(r.path) {
		if e.Attributes["type"] == kind {
			bodies = append(bodies, string(e.Body))
		}
	}
	return bodies
}
