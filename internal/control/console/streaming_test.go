package console_test

import (
	"context"
	"errors"
	"log/slog"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/config/secret"
	"github.com/auditrelay/auditrelay/internal/control/console"
	"github.com/auditrelay/auditrelay/internal/testbed/workspacesim"
	"github.com/auditrelay/auditrelay/internal/workspace/management"
	"github.com/auditrelay/auditrelay/internal/workspace/streaming"
)

// streamingConsole is a console whose relay desires a Loki for each environment of a
// simulated workspace, for one more without existence, and for none of the last.
func streamingConsole(t *testing.T) (*console.Client, *workspacesim.Simulator, *error) {
	t.Helper()
	sim, err := workspacesim.New(workspacesim.Options{Projects: 8})
	require.NoError(t, err)
	api := httptest.NewServer(sim.Handler())
	t.Cleanup(api.Close)
	client, err := management.New(management.Options{BaseURL: api.URL, KeyID: workspacesim.DemoKeyID, Secret: secret.New(workspacesim.DemoSecret), RequestsPerSecond: 1000})
	require.NoError(t, err)
	var all []config.Environment
	to := &config.Stream{GrafanaLoki: &config.StreamGrafanaLoki{Hostname: "loki.example.com", Username: "u", Password: secret.New("a-password-0001")}}
	for _, e := range sim.Environments() {
		all = append(all, config.Environment{Project: e.Project, Environment: e.Environment, Stream: to})
	}
	all = append(all, config.Environment{Project: "acme-portal", Environment: "none", Stream: to})
	all = append(all, config.Environment{Project: "acme-portal", Environment: "unwatched"})
	r := streaming.New(streaming.Options{Environments: all, Client: client, DryRun: true})
	dir, starting := t.TempDir(), new(error)
	server, err := console.Listen(t.Context(), dir, console.Options{
		Logger: slog.New(slog.DiscardHandler), Streaming: func() (*streaming.Reconciler, error) { return r, *starting },
	}, func(err error) { t.Error(err) })
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, server.Close(context.Background())) })
	return console.NewClient(dir), sim, starting
}

func TestPlansOfAllEnvironments(t *testing.T) {
	t.Parallel()
	c, sim, _ := streamingConsole(t)
	var plans []console.Planned
	take := func(p console.Planned) error { plans = append(plans, p); return nil }
	require.NoError(t, c.PlanStreaming(t.Context(), console.OfEnvironment{}, take))
	environments := sim.Environments()
	require.Len(t, plans, len(environments)+1)
	for i, e := range environments {
		assert.Equal(t, []string{e.Project, e.Environment}, []string{plans[i].Project, plans[i].Environment}, "in order")
		require.NotNil(t, plans[i].Preview, plans[i].Error)
		assert.True(t, plans[i].Preview.Differs)
	}
	last := plans[len(environments)]
	assert.Nil(t, last.Preview)
	assert.Contains(t, last.Error, "acme-portal/none")

	plans = nil
	require.NoError(t, c.PlanStreaming(t.Context(), console.OfEnvironment{Project: "acme-portal", Environment: "test"}, take))
	require.Len(t, plans, 1)
	assert.Equal(t, "test", plans[0].Preview.Environment)
	enough := errors.New("enough")
	require.ErrorIs(t, c.PlanStreaming(t.Context(), console.OfEnvironment{}, func(console.Planned) error { return enough }), enough)
	list, err := c.Streaming(t.Context())
	require.NoError(t, err)
	assert.Len(t, list, len(environments)+2)
}

func TestStreamingRefusals(t *testing.T) {
	t.Parallel()
	c, _, starting := streamingConsole(t)
	_, err := c.ApplyStreaming(t.Context(), console.OfEnvironment{Project: "acme-portal", Environment: "test"})
	require.ErrorContains(t, err, "streaming.dry_run is set")
	_, err = c.ApplyStreaming(t.Context(), console.OfEnvironment{Project: "acme-portal", Environment: "unwatched"})
	require.ErrorContains(t, err, "no stream for this environment; add its stream")
	*starting = errors.New("the relay is still starting")
	_, err = c.Streaming(t.Context())
	require.ErrorContains(t, err, "still starting")
	require.ErrorContains(t, c.PlanStreaming(t.Context(), console.OfEnvironment{}, nil), "still starting")
	_, err = c.ApplyStreaming(t.Context(), console.OfEnvironment{})
	require.ErrorContains(t, err, "still starting")
}
