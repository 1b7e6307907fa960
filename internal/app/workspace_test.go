package app

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/config/secret"
	"github.com/auditrelay/auditrelay/internal/control/console"
	"github.com/auditrelay/auditrelay/internal/testbed/waiting"
	"github.com/auditrelay/auditrelay/internal/testbed/workspacesim"
	"github.com/auditrelay/auditrelay/internal/trail/timeline"
)

// TestARevokedKeyIsOneMessage: of four environments, controlled and observed, before it
// were 22 warnings and 3 errors.
func TestARevokedKeyIsOneMessage(t *testing.T) {
	t.Parallel()
	sim, err := workspacesim.New(workspacesim.Options{Projects: 2})
	require.NoError(t, err)
	var refuse atomic.Bool
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if refuse.Load() {
			r.Header.Del("Authorization")
		}
		sim.Handler().ServeHTTP(w, r)
	}))
	defer api.Close()
	cfg := testConfig(t.TempDir())
	cfg.Workspace = &config.Workspace{BaseURL: api.URL, KeyID: workspacesim.DemoKeyID, Secret: secret.New(workspacesim.DemoSecret), RequestsPerSecond: 1000}
	cfg.Environments = nil
	for i, e := range sim.Environments() {
		env := config.Environment{Project: e.Project, Environment: e.Environment}
		if i%2 == 0 {
			env.Stream = &config.Stream{Relay: &config.StreamRelay{Hostname: "localhost:3100"}}
		}
		cfg.Environments = append(cfg.Environments, env)
	}
	cfg.SetDefaults()
	cfg.Settings.Interval, cfg.Streaming.Interval = 100*time.Millisecond, 50*time.Millisecond
	require.NoError(t, cfg.Validate())
	var logs waiting.Output
	ctx, cancel := context.WithCancel(t.Context())
	started, ended := make(chan Addresses, 1), make(chan error, 1)
	go func() {
		ended <- Run(ctx, cfg, Options{
			Logger:  slog.New(slog.NewTextHandler(&logs, &slog.HandlerOptions{Level: slog.LevelWarn})),
			Started: func(a Addresses) { started <- a },
		})
	}()
	r := &running{t: t, path: cfg.Sinks[0].File.Path, Addresses: <-started}
	count := func(types ...string) (n int) {
		for _, e := range auditEvents(r.path) {
			for _, kind := range types {
				if fmt.Sprint(e.Attributes["type"]) == kind {
					n++
				}
			}
		}
		return n
	}
	waiting.Until(t, func() bool { return count("settings.baseline") == 2*3+4*4 && count("streaming.changed") == 2 })
	before := logs.String()
	refuse.Store(true)
	waiting.Until(t, func() bool { return count("workspace.unreachable") == 1 })
	refuse.Store(false)
	waiting.Until(t, func() bool { return count("workspace.reachable") == 1 })
	cancel()
	require.NoError(t, <-ended)
	assert.Equal(t, 1, count("workspace.unreachable"))
	assert.Zero(t, count("settings.failed", "streaming.failed", "streaming.put_failed", "settings.changed", "environment.gone"))
	told := strings.TrimPrefix(logs.String(), before)
	late := strings.Count(told, "the settings are read less often than configured") // on a slow machine
	assert.Equal(t, 1, strings.Count(told, "\n")-late, told)
	assert.Contains(t, told, "the management API refuses the key")
}

// TestARefusedPushIsLookedInto: before, only the next look at the interval found out.
func TestARefusedPushIsLookedInto(t *testing.T) {
	t.Parallel()
	sim, err := workspacesim.New(workspacesim.Options{Projects: 1})
	require.NoError(t, err)
	var looks atomic.Int64
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/event_log_streaming/GRAFANA_LOKI") {
			looks.Add(1)
		}
		sim.Handler().ServeHTTP(w, r)
	}))
	defer api.Close()
	cfg := testConfig(t.TempDir())
	cfg.Workspace = &config.Workspace{BaseURL: api.URL, KeyID: workspacesim.DemoKeyID, Secret: secret.New(workspacesim.DemoSecret)}
	e := sim.Environments()[0]
	cfg.Environments[0].Project, cfg.Environments[0].Environment = e.Project, e.Environment
	cfg.SetDefaults()
	cfg.Settings.Disabled, cfg.Streaming.Interval = true, time.Hour
	r := start(t, cfg)
	waiting.Until(t, func() bool { return looks.Load() == 1 })
	req, err := http.NewRequest(http.MethodPost, "http://"+r.Ingest+"/loki/api/v1/push", strings.NewReader(`{}`))
	require.NoError(t, err)
	req.SetBasicAuth("u", "a-wrong-password-of-some-length")
	status, _ := r.do(req)
	require.Equal(t, http.StatusUnauthorized, status)
	waiting.Until(t, func() bool { return looks.Load() == 2 })
	require.NoError(t, r.stop())
}

// TestTheNewestLookIsWhenAStateWasLastSeen: before, that was the entry with the state, or the
// attestation after it, which comes once a day.
func TestTheNewestLookIsWhenAStateWasLastSeen(t *testing.T) {
	t.Parallel()
	sim, err := workspacesim.New(workspacesim.Options{Projects: 1})
	require.NoError(t, err)
	api := httptest.NewServer(sim.Handler())
	defer api.Close()
	cfg := testConfig(t.TempDir())
	cfg.Workspace = &config.Workspace{BaseURL: api.URL, KeyID: workspacesim.DemoKeyID, Secret: secret.New(workspacesim.DemoSecret), RequestsPerSecond: 1000}
	e := sim.Environments()[0]
	cfg.Environments[0].Project, cfg.Environments[0].Environment = e.Project, e.Environment
	cfg.SetDefaults()
	cfg.Settings.Interval, cfg.Streaming.Interval = 50*time.Millisecond, 50*time.Millisecond
	r := start(t, cfg)
	for _, setting := range []string{"password_strength_config", "default_email_templates", "event_log_streaming"} {
		where := timeline.Where{Project: e.Project, Setting: setting}
		var entry int64
		var seen time.Time
		waiting.Until(t, func() bool { // two looks after the entry's
			s, err := console.NewClient(cfg.DataDir).At(t.Context(), where, time.Now())
			if err != nil || !s.Seen.After(s.Entry.Time) {
				return false
			}
			later := !seen.IsZero() && s.Seen.After(seen)
			entry, seen = s.Entry.Index, s.Seen
			return later
		})
		s, err := console.NewClient(cfg.DataDir).At(t.Context(), where, time.Now())
		require.NoError(t, err)
		assert.Equal(t, entry, s.Entry.Index, "the looks made no entry")
	}
	require.NoError(t, r.stop())
}
