package app

import (
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
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

// ofWorkspace makes cfg watch two environments of a simulated workspace.
func ofWorkspace(t *testing.T, cfg *config.Config) *config.Config {
	t.Helper()
	sim, err := workspacesim.New(workspacesim.Options{Projects: 1})
	require.NoError(t, err)
	api := httptest.NewServer(sim.Handler())
	t.Cleanup(api.Close)
	cfg.Workspace = &config.Workspace{BaseURL: api.URL, KeyID: workspacesim.DemoKeyID, Secret: secret.New(workspacesim.DemoSecret), RequestsPerSecond: 1000}
	cfg.Environments = nil
	for _, e := range sim.Environments() {
		cfg.Environments = append(cfg.Environments, config.Environment{
			Project: e.Project, Environment: e.Environment, Stream: &config.Stream{Relay: &config.StreamRelay{Hostname: "localhost:3100"}},
		})
	}
	cfg.SetDefaults()
	return cfg
}

// Every section of /status has names in snake_case, and times that mean something.
func TestStatusHasOneStyle(t *testing.T) {
	t.Parallel()
	dead := config.Sink{Name: "dead", Kafka: &config.Kafka{Brokers: []string{"127.0.0.1:1"}, Topic: "t"}}
	cfg := ofWorkspace(t, testConfig(t.TempDir(), dead))
	r := start(t, cfg)
	defer func() { require.NoError(t, r.stop()) }()
	var status map[string]any
	var changes []any
	waiting.Until(t, func() bool {
		code, body := r.get("/status")
		require.Equal(t, http.StatusOK, code)
		require.NoError(t, json.Unmarshal([]byte(body), &status))
		changes, _ = status["changes"].([]any)
		return len(changes) > 0
	}, "the relay's own PUTs are changes")
	assert.Subset(t, slices.Collect(maps.Keys(status)),
		[]string{"relay", "ready", "environments", "journal", "sinks", "streaming", "settings", "workspace", "trail", "spans", "changes"})
	assert.Contains(t, changes[0], "summary")
	checkStyle(t, "", status)

	sections, err := console.NewClient(cfg.DataDir).Status(t.Context(), console.AskStatus{})
	require.NoError(t, err)
	var sinks []console.Sink
	require.NoError(t, json.Unmarshal(sections["sinks"], &sinks))
	require.Len(t, sinks, 2)
	assert.Equal(t, []string{"dead", "kafka", "file", "file"}, []string{sinks[0].Name, sinks[0].Kind, sinks[1].Name, sinks[1].Kind})
}

var snakeCase = regexp.MustCompile(`^[a-z][a-z0-9]*(_[a-z0-9]+)*$`)

// checkStyle checks all names and times below a value, except for the names of a map by
// witness or sink.
func checkStyle(t *testing.T, path string, value any) {
	t.Helper()
	switch v := value.(type) {
	case map[string]any:
		for name, member := range v {
			assert.Regexp(t, snakeCase, name, "%s", path)
			checkStyle(t, path+"/"+name, member)
		}
	case []any:
		for _, element := range v {
			checkStyle(t, path+"/-", element)
		}
	case string:
		assert.False(t, strings.HasPrefix(v, "0001-"), "%s is a time that never was", path)
		if at, err := time.Parse(time.DateTime, strings.Replace(v[:min(19, len(v))], "T", " ", 1)); err == nil && at.Year() > 2000 {
			_, err := time.Parse(time.RFC3339, v)
			assert.NoError(t, err, path)
		}
	}
}

// A dead sink is shown with its reason, and pushes go on: nobody is to reroute them.
func TestADeadSinkIsARemark(t *testing.T) {
	t.Parallel()
	dead := config.Sink{Name: "dead", Kafka: &config.Kafka{Brokers: []string{"127.0.0.1:1"}, Topic: "t"}}
	cfg := testConfig(t.TempDir(), dead)
	r := start(t, cfg)
	defer func() { require.NoError(t, r.stop()) }()
	code, body := r.push("a")
	require.Equal(t, http.StatusNoContent, code, body)
	r.awaitReady("sinks: warning: 1 of 2 fail, and are tried again: dead has failed for ")
	var list []console.Sink
	waiting.Until(t, func() bool {
		var err error
		list, err = console.NewClient(cfg.DataDir).Sinks(t.Context())
		require.NoError(t, err)
		pushed, own := written(r.path)
		return list[1].Position != nil && list[1].Position.Pending == 0 &&
			pushed == 1 && own == 2 && list[1].Events == 3
	}, "the other sink has the event, the entry of the start and its checkpoint")
	failing, works := list[0], list[1]
	assert.Contains(t, failing.LastError, "connect")
	assert.False(t, failing.FailingSince.IsZero())
	assert.True(t, failing.LastSuccess.IsZero())
	assert.False(t, failing.OldestUnacknowledged.IsZero())
	assert.Positive(t, failing.LagSeconds)
	assert.True(t, works.FailingSince.IsZero())
	assert.False(t, works.LastSuccess.IsZero())
	assert.True(t, works.OldestUnacknowledged.IsZero())
	assert.Zero(t, works.LagSeconds)
	assert.Empty(t, works.LastError)
}
