package cli

import (
	"bytes"
	"encoding/json"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/testbed/workspacesim"
)

// preflightConfig writes a configuration against a simulated workspace, with the given
// environments from its line 9 on.
func preflightConfig(t *testing.T, secret, environments string) string {
	t.Helper()
	sim, err := workspacesim.New(workspacesim.Options{})
	require.NoError(t, err)
	server := httptest.NewServer(sim.Handler())
	t.Cleanup(server.Close)
	dir := t.TempDir()
	file := filepath.Join(dir, "relay.yaml")
	require.NoError(t, os.WriteFile(file, []byte(strings.NewReplacer("DIR", dir, "URL", server.URL, "SECRET", secret).Replace(
		`data_dir: DIR/data
workspace:
  base_url: URL
  key_id: workspace-key-demo-7d1f0c52
  secret: SECRET
  requests_per_second: 100
ingest: {listen: ":8080", behind_proxy: true}
environments:
`)+environments+"sinks:\n  - {name: out, file: {path: "+dir+"/out}}\n"), 0o600))
	return file
}

func execute(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	code = Program{}.Execute(t.Context(), args, &out, &errs)
	return code, out.String(), errs.String()
}

func TestConfigCheckAsksTheAPI(t *testing.T) {
	t.Parallel()
	file := preflightConfig(t, workspacesim.DemoSecret, `  - {project: acme-portal, environment: production, stream: {relay: {hostname: relay.example.com}}}
  - project: acme-portal
    environment: staging
`)
	code, out, _ := execute(t, "config", "check", file)
	assert.Equal(t, ExitOK, code, out)
	code, out, stderr := execute(t, "config", "check", file, "--api")
	assert.Equal(t, ExitFailure, code)
	assert.Empty(t, stderr)
	assert.Regexp(t, `error +11 +environments\[1\]\.environment +project acme-portal has no environment "staging" .*; correct the slug`, out)
	assert.Regexp(t, `warning +9 +environments\[0\]\.stream +acme-portal/production has no streaming config`, out)
	assert.Regexp(t, `management API: key accepted; \d+ requests in \d+\.\d s, 0 of them answered 429; the relay needs 0\.\d requests per second, and 100\.0 are allowed`, out)
	assert.Regexp(t, `acme-portal/production +yes +nowhere +- +create it`, out)
	assert.Regexp(t, `acme-portal/staging +no +- +- +-`, out)

	code, out, _ = execute(t, "config", "check", file, "--api", "--json")
	assert.Equal(t, ExitFailure, code)
	var said struct {
		OK     bool
		Errors []struct {
			File, Field string
			Line        int
		}
		API struct {
			Key          string
			Environments []struct{ Exists string }
		}
	}
	require.NoError(t, json.Unmarshal([]byte(out), &said))
	assert.False(t, said.OK)
	assert.Equal(t, file, said.Errors[0].File)
	assert.Equal(t, 11, said.Errors[0].Line)
	assert.Equal(t, "accepted", said.API.Key)
	assert.Equal(t, "no", said.API.Environments[1].Exists)
}

func TestConfigCheckRefusedKey(t *testing.T) {
	t.Parallel()
	code, out, _ := execute(t, "config", "check", preflightConfig(t, "s", "  - {project: acme-portal, environment: test, stram: x}\n"), "--api")
	assert.Equal(t, ExitFailure, code)
	assert.Contains(t, out, "--api asked nothing: correct the errors first")
	file := preflightConfig(t, "not-the-secret-of-that-key", "  - {project: acme-portal, environment: test}\n")
	code, out, _ = execute(t, "config", "check", file, "--api")
	assert.Equal(t, ExitFailure, code)
	assert.Regexp(t, `error +4 +workspace\.key_id +the API refuses this management key`, out)
	assert.NotContains(t, out, "not-the-secret")
	assert.NotContains(t, out, "EXISTS", "nothing is known of any environment")
}
