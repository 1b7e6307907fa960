package app

import (
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

// TestAForeignStreamIsWatched has one stream to a Loki with a query, and one to Datadog
// without.
func TestAForeignStreamIsWatched(t *testing.T) {
	t.Parallel()
	newest := time.Now().Add(-time.Minute)
	loki := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprintf(w, `{"data":{"resultType":"streams","result":[{"values":[["%d",""]]}]}}`, newest.UnixNano())
	}))
	defer loki.Close()
	sim, err := workspacesim.New(workspacesim.Options{Projects: 2})
	require.NoError(t, err)
	api := httptest.NewServer(sim.Handler())
	defer api.Close()
	cfg := testConfig(t.TempDir())
	cfg.Workspace = &config.Workspace{BaseURL: api.URL, KeyID: workspacesim.DemoKeyID, Secret: secret.New(workspacesim.DemoSecret), RequestsPerSecond: 1000}
	cfg.Environments = nil
	for i, e := range sim.Environments()[:2] {
		env := config.Environment{Project: e.Project, Environment: e.Environment, SkipSettings: true}
		env.Stream = &config.Stream{Datadog: &config.StreamDatadog{APIKey: secret.New("0123456789abcdef"), Site: "US"}}
		if i == 0 {
			env.Stream = &config.Stream{GrafanaLoki: &config.StreamGrafanaLoki{
				Hostname: "loki.example.com", Username: "u", Password: secret.New("a-password-of-some-length"),
				Query: &config.LokiQuery{URL: loki.URL, Selector: `{app="idp"}`},
			}}
		}
		cfg.Environments = append(cfg.Environments, env)
	}
	cfg.SetDefaults()
	cfg.Streaming.Interval = 100 * time.Millisecond
	require.NoError(t, cfg.Validate())
	r := start(t, cfg)
	defer func() { require.NoError(t, r.stop()) }()
	var now []health.Status
	waiting.Until(t, func() bool {
		now = r.health()
		return now[0].State == health.Flowing && now[1].Declared.Status == "ACTIVE"
	}, "both are looked at")
	assert.Contains(t, now[0].Reason, "the newest event at its destination is of ")
	assert.True(t, newest.Equal(now[0].Observed.LastPush))
	assert.Equal(t, health.Unknown, now[1].State)
	assert.Contains(t, now[1].Reason, "not watched: the configuration has no access")
}
