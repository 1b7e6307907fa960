package streaming_test

import (
	"context"
	"encoding/json"
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
	"github.com/auditrelay/auditrelay/internal/testbed/workspacesim"
	"github.com/auditrelay/auditrelay/internal/workspace/streaming"
)

// stage is a workspace behind a server that only lets reads pass.
type stage struct {
	*workspacesim.Simulator
	t   *testing.T
	cfg config.Config
}

func newStage(t *testing.T, o workspacesim.Options) *stage {
	t.Helper()
	sim, err := workspacesim.New(o)
	require.NoError(t, err)
	api := sim.Handler()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		assert.Equal(t, http.MethodGet, r.Method, "a preflight only reads")
		api.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	s := &stage{sim, t, config.Config{Workspace: &config.Workspace{
		BaseURL: server.URL, KeyID: workspacesim.DemoKeyID, Secret: secret.New(workspacesim.DemoSecret), RequestsPerSecond: 1000,
	}}}
	return s
}

func (s *stage) with(project, environment string, stream *config.Stream) {
	s.cfg.Environments = append(s.cfg.Environments, config.Environment{Project: project, Environment: environment, Stream: stream})
}

func (s *stage) streams(project, environment, destinationType, destination string) {
	s.t.Helper()
	require.NoError(s.t, s.CreateStreaming(project, environment, destinationType, json.RawMessage(destination)))
}

func toRelay() *config.Stream {
	return &config.Stream{Relay: &config.StreamRelay{Hostname: "relay.example.com"}}
}

const (
	lokiElsewhere = `{"grafana_loki":{"hostname":"logs.example.com","username":"u","password":"pass-word-1234"}}`
	datadogUS     = `{"datadog":{"api_key":"0123456789abcdef","site":"US"}}`
)

// said asserts the fields of problems in order, each with a part of its reason.
func said(t *testing.T, problems []config.Problem, want ...string) {
	t.Helper()
	require.Len(t, problems, len(want)/2, "%v", problems)
	for i := 0; i < len(want); i += 2 {
		found := false
		for _, p := range problems {
			found = found || p.Field == want[i] && strings.Contains(p.Reason, want[i+1])
		}
		assert.True(t, found, "%s: %s in %v", want[i], want[i+1], problems)
	}
}

func TestNamesWhatDoesNotExist(t *testing.T) {
	t.Parallel()
	s := newStage(t, workspacesim.Options{})
	s.with("acme-portal", "prod", toRelay())
	s.with("acme_Portal", "test", nil)
	s.with("no-such", "test", nil)
	s.with("acme-portal", "test", nil)
	r := streaming.Preflight(t.Context(), &s.cfg)
	said(t, r.Errors,
		"environments[0].environment", `project acme-portal has no environment "prod" (environment_not_found, request request-id-`,
		"environments[1].project", `the workspace has no project "acme_Portal" (HTTP 404 project_not_found, request request-id-`,
		"environments[2].project", `no project "no-such"`)
	assert.Empty(t, r.Warnings)
	assert.Equal(t, streaming.KeyAccepted, r.Key)
	for i, exists := range []string{streaming.ExistsNo, streaming.ExistsNo, streaming.ExistsNo, streaming.ExistsYes} {
		assert.Equal(t, exists, r.Environments[i].Exists, "%d", i)
	}
}

func TestSaysWhatTheRelayWouldChange(t *testing.T) {
	t.Parallel()
	s := newStage(t, workspacesim.Options{NewConfigStatus: workspacesim.StatusDisabled})
	s.with("acme-portal", "production", toRelay())
	s.with("acme-portal", "test", toRelay())
	s.with("northwind-shop", "production", toRelay())
	s.with("northwind-shop", "test", &config.Stream{Datadog: &config.StreamDatadog{Site: "US", APIKey: secret.New("0123456789abcdef")}})
	s.with("lumen-health", "test", &config.Stream{Observe: true})
	s.streams("acme-portal", "test", "DATADOG", datadogUS)
	s.streams("northwind-shop", "production", "GRAFANA_LOKI", lokiElsewhere)
	s.streams("northwind-shop", "test", "DATADOG", datadogUS)
	s.streams("lumen-health", "test", "GRAFANA_LOKI", lokiElsewhere)
	require.NoError(t, s.SetStreamingStatus("northwind-shop", "production", workspacesim.StatusActive))
	r := streaming.Preflight(t.Context(), &s.cfg)
	assert.Empty(t, r.Errors)
	said(t, r.Warnings,
		"environments[0].stream", "create one of type GRAFANA_LOKI in the dashboard",
		"environments[1].stream", "streams to DATADOG US now, which would get no more events",
		"environments[2].stream", "streams to GRAFANA_LOKI logs.example.com now",
		"environments[3].stream", `streaming_status of northwind-shop/test is "DISABLED"`)
	for i, differs := range [][]string{{"destination_type"}, {"destination_type"}, {"hostname", "username"}, nil, nil} {
		assert.Equal(t, differs, r.Environments[i].Differs, "%d", i)
	}
	assert.Equal(t, "GRAFANA_LOKI logs.example.com", streaming.DestinationText(r.Environments[4].Destination))
	assert.Equal(t, "nowhere", streaming.DestinationText(r.Environments[0].Destination))
	out, err := json.Marshal(r)
	require.NoError(t, err)
	assert.NotContains(t, string(out), "0123456789abcdef")
}

// One error, and no further request, where nothing can be asked.
func TestTheAPICannotBeUsed(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change      func(s *stage)
		field, says string
		key         string
	}{
		"wrong key": {
			func(s *stage) { s.cfg.Workspace.Secret = secret.New("wrong-secret") },
			"workspace.key_id", "refuses this management key (management API answered 401", streaming.KeyRefused,
		},
		"outage": {
			func(s *stage) { require.NoError(s.t, s.SetFaults(workspacesim.Faults{Outage: true})) },
			"workspace.base_url", "the API cannot be used", streaming.KeyUnknown,
		},
		"other server": {func(s *stage) {
			other := httptest.NewServer(http.NotFoundHandler())
			s.t.Cleanup(other.Close)
			s.cfg.Workspace.BaseURL = other.URL
		}, "workspace.base_url", "something other than the API", streaming.KeyUnknown},
		"bad address": {func(s *stage) { s.cfg.Workspace.BaseURL = "ftp://x" }, "workspace", "https is required", streaming.KeyUnknown},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t, workspacesim.Options{})
			s.with("acme-portal", "production", toRelay())
			s.with("northwind-shop", "production", toRelay())
			c.change(s)
			r := streaming.Preflight(t.Context(), &s.cfg)
			said(t, r.Errors, c.field, c.says)
			assert.Equal(t, c.key, r.Key)
			assert.LessOrEqual(t, r.Requests, 5)
			assert.NotContains(t, r.Errors[0].Reason, "wrong-secret")
		})
	}
}

// The key is in order where it may read another project.
func TestAProjectThatTheKeyMayNotRead(t *testing.T) {
	t.Parallel()
	s := newStage(t, workspacesim.Options{})
	api := s.Handler()
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.URL.Path, "/acme-portal") {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		api.ServeHTTP(w, r)
	}))
	t.Cleanup(front.Close)
	s.cfg.Workspace.BaseURL = front.URL
	s.with("acme-portal", "production", toRelay())
	s.with("northwind-shop", "production", toRelay())
	r := streaming.Preflight(t.Context(), &s.cfg)
	said(t, r.Errors, "environments[0].project", "give the management key the right to read it")
	assert.Equal(t, streaming.KeyAccepted, r.Key)
	assert.Equal(t, streaming.ExistsYes, r.Environments[1].Exists)
}

// Where the project can be read, the failure is the environment's own.
func TestAnEnvironmentThatCannotBeRead(t *testing.T) {
	t.Parallel()
	s := newStage(t, workspacesim.Options{})
	for _, e := range s.Environments() {
		s.with(e.Project, e.Environment, toRelay())
	}
	require.NoError(t, s.SetFaults(workspacesim.Faults{ErrorRates: map[int]float64{401: 1}, PathContains: "event_log_streaming"}))
	r := streaming.Preflight(t.Context(), &s.cfg)
	assert.Len(t, r.Errors, 6)
	assert.Equal(t, streaming.KeyAccepted, r.Key)
	for _, e := range r.Environments {
		assert.Equal(t, streaming.ExistsUnknown, e.Exists)
		assert.Contains(t, e.Error, "401")
	}
}

func TestCounts429s(t *testing.T) {
	t.Parallel()
	var requests atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if requests.Add(1) == 1 {
			w.WriteHeader(http.StatusTooManyRequests)
			return
		}
		_, _ = w.Write([]byte(`{"request_id":"r","status_code":200,"project":{},"event_log_streaming_config":{}}`))
	}))
	t.Cleanup(server.Close)
	s := newStage(t, workspacesim.Options{})
	s.cfg.Workspace.BaseURL = server.URL
	s.with("acme-portal", "production", nil)
	r := streaming.Preflight(t.Context(), &s.cfg)
	said(t, r.Warnings, "workspace.requests_per_second", "429 to 1 of 4 requests")
	assert.Empty(t, r.Errors)
	assert.Equal(t, 1, r.Throttled)
	assert.Positive(t, r.NeededPerSecond)
}

// A preflight ends with its time, and says how much is left.
func TestEndsInTime(t *testing.T) {
	t.Parallel()
	s := newStage(t, workspacesim.Options{})
	s.with("acme-portal", "production", nil)
	s.with("northwind-shop", "production", nil)
	require.NoError(t, s.SetFaults(workspacesim.Faults{Latency: time.Hour, PathContains: "northwind"}))
	ctx, cancel := context.WithCancel(t.Context())
	reached := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.URL.Path, "northwind") {
			close(reached)
		}
		s.Handler().ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	s.cfg.Workspace.BaseURL = server.URL
	go func() {
		<-reached
		cancel()
	}()
	r := streaming.Preflight(ctx, &s.cfg)
	said(t, r.Errors, "environments", "2 of 2 environments are not checked")
	assert.Empty(t, r.Warnings)
}
