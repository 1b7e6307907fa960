package streaming

import (
	"bytes"
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/config/secret"
	"github.com/auditrelay/auditrelay/internal/ingest/credentials"
	"github.com/auditrelay/auditrelay/internal/testbed/workspacesim"
	"github.com/auditrelay/auditrelay/internal/workspace"
	"github.com/auditrelay/auditrelay/internal/workspace/management"
)

// strict is a rig with the simulator in its strict modes, as the real service is.
type strict struct {
	t    *testing.T
	sim  *workspacesim.Simulator
	env  credentials.Environment
	logs *bytes.Buffer
	*rig
}

func newStrict(t *testing.T) *strict {
	t.Helper()
	o := workspacesim.Options{Projects: 1}
	o.StrictStreaming()
	sim, err := workspacesim.New(o)
	require.NoError(t, err)
	web := httptest.NewServer(sim.Handler())
	t.Cleanup(web.Close)
	e := sim.Environments()[0]
	return &strict{
		t: t, sim: sim, env: credentials.Environment{Project: e.Project, Environment: e.Environment}, logs: &bytes.Buffer{},
		rig: &rig{t: t, url: web.URL, trail: &trail{}, table: newTable(t)},
	}
}

func (s *strict) start(env credentials.Environment) *Reconciler {
	s.t.Helper()
	log := slog.New(slog.NewTextHandler(s.logs, nil))
	envs := []config.Environment{{Project: env.Project, Environment: env.Environment, Stream: toRelay}}
	r, _ := s.rig.start(func(o *Options) {
		var err error
		o.Environments, o.Logger, o.Presence = envs, log, workspace.NewPresence(s.trail, log)
		o.Client, err = management.New(management.Options{
			BaseURL: s.url, KeyID: workspacesim.DemoKeyID, Secret: secret.New(workspacesim.DemoSecret), RequestsPerSecond: 1000, MaxAttempts: 1,
		})
		require.NoError(s.t, err)
		o.Credentials, err = credentials.Open(s.t.Context(), newTable(s.t), credentials.Options{Environments: envs})
		require.NoError(s.t, err)
		s.t.Cleanup(o.Credentials.Close)
	}, toRelay)
	return r
}

// The real service refuses to make a config, or to replace one of the other type, and
// makes a new one DISABLED. Each time the relay says what a person has to do, once, and
// goes on by itself when it is done.
func TestAPersonIsToldWhatToDo(t *testing.T) {
	t.Parallel()
	s := newStrict(t)
	r := s.start(s.env)
	for range 3 {
		require.Error(t, look(t, r))
	}
	assert.Equal(t, []string{"baseline", "put_intended", "put_failed"}, s.trail.types(), "one attempt")
	h := r.Health()[0]
	assert.Equal(t, FindingRefused, h.Finding)
	assert.Contains(t, h.Advice, "has no streaming config, and the API refuses to make one (HTTP 404 event_log_streaming_config_not_found): create a GRAFANA_LOKI destination")
	assert.Equal(t, h.Advice, attemptOf(s.trail.entries[2]).Advice)
	assert.Equal(t, 1, strings.Count(s.logs.String(), "create a GRAFANA_LOKI destination"), s.logs.String())
	assert.NotContains(t, s.logs.String(), "level=ERROR")

	// A person makes one of the wrong type: that is looked into at once.
	datadog := `{"datadog":{"site":"US","api_key":"0123456789abcdef0123456789abcdef"}}`
	require.NoError(t, s.sim.CreateStreaming(s.env.Project, s.env.Environment, "DATADOG", []byte(datadog)))
	require.Error(t, look(t, r))
	assert.Contains(t, r.Health()[0].Advice, "streams to DATADOG, and the API refuses to replace it by GRAFANA_LOKI")
	require.NoError(t, s.sim.DeleteStreaming(s.env.Project, s.env.Environment))

	loki := `{"grafana_loki":{"hostname":"any.example.com","username":"any","password":"any-password"}}`
	require.NoError(t, s.sim.CreateStreaming(s.env.Project, s.env.Environment, "GRAFANA_LOKI", []byte(loki)))
	require.NoError(t, look(t, r))
	h = r.Health()[0]
	assert.Equal(t, []string{"not_active", "DISABLED"}, []string{string(h.Finding), string(h.Status)})
	assert.Contains(t, h.Advice, "enable it in the dashboard")
	require.NoError(t, s.sim.SetStreamingStatus(s.env.Project, s.env.Environment, "ACTIVE"))
	require.NoError(t, look(t, r))
	assert.True(t, r.Health()[0].OK(), "%+v", r.Health()[0])
	assert.Equal(t, 1, strings.Count(s.logs.String(), "as it should be now"))
}

// A slip in the configuration is no event in the workspace: it enters no entry, not even
// one that says its config was looked at.
func TestAnEnvironmentThatDoesNotExist(t *testing.T) {
	t.Parallel()
	s := newStrict(t)
	for range 2 {
		r := s.start(credentials.Environment{Project: s.env.Project, Environment: "a-slip"})
		for range 3 {
			require.Error(t, r.watchers[0].checkedLook(t.Context()))
		}
		r.watchers[0].attestLast(t.Context())
		h := r.Health()[0]
		assert.Equal(t, FindingAbsent, h.Finding)
		assert.Contains(t, h.Advice, "correct its project and environment slugs")
		assert.Zero(t, testutil.ToFloat64(r.watchers[0].metrics.active.WithLabelValues(s.env.Project, "a-slip")))
		assert.Zero(t, testutil.ToFloat64(r.watchers[0].metrics.matches.WithLabelValues(s.env.Project, "a-slip")))
		assert.Empty(t, s.trail.types())
	}
	assert.Equal(t, 2, strings.Count(s.logs.String(), "\n"), "one line in each process: %s", s.logs)
}
