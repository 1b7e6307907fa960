package streaming

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/config/secret"
	"github.com/auditrelay/auditrelay/internal/testbed/workspacesim"
)

// throttled checks a whole workspace against an API of one request a second.
func throttled(t *testing.T, within time.Duration) (r PreflightReport, environments int) {
	t.Helper()
	sim, err := workspacesim.New(workspacesim.Options{RateLimit: 1})
	require.NoError(t, err)
	cfg := &config.Config{Workspace: &config.Workspace{
		BaseURL: "http://127.0.0.1:1", KeyID: workspacesim.DemoKeyID, Secret: secret.New(workspacesim.DemoSecret), RequestsPerSecond: 100,
	}}
	for _, e := range sim.Environments() {
		cfg.Environments = append(cfg.Environments, config.Environment{Project: e.Project, Environment: e.Environment})
	}
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	return preflight(ctx, cfg, handled{sim.Handler()}), len(cfg.Environments)
}

// An API of few requests only makes a preflight longer.
func TestIsPatientWith429s(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r, environments := throttled(t, 10*time.Minute)
		assert.Empty(t, r.Errors)
		require.Len(t, r.Warnings, 1)
		assert.Contains(t, r.Warnings[0].Reason, "the API answered 429 to")
		assert.Positive(t, r.Throttled)
		for _, e := range r.Environments {
			assert.Equal(t, ExistsYes, e.Exists)
		}
		assert.Len(t, r.Environments, environments)
	})
}

func TestANeverEndingThrottleEndsWithTheTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r, _ := throttled(t, 2*time.Second)
		require.Len(t, r.Errors, 1)
		assert.Contains(t, r.Errors[0].Reason, "of 6 environments are not checked")
	})
}
