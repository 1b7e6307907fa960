package main

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/testbed/waiting"
	"github.com/auditrelay/auditrelay/internal/testbed/workspacesim"
)

// TestMain lets the test binary be the program, for tests in need of a process.
func TestMain(m *testing.M) {
	if os.Getenv("WORKSPACESIM_AS_PROGRAM") != "" {
		main()
	}
	os.Exit(m.Run())
}

func TestServesUntilSIGTERM(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), waiting.Stall)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0], "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0", "--rate", "1000", "--change-every", "1ms", "--strict-streaming")
	cmd.Env = append(os.Environ(), "WORKSPACESIM_AS_PROGRAM=1", "WORKSPACESIM_SECRET=")
	var logs bytes.Buffer
	cmd.Stderr = &logs
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	said := readGreeting(out)
	assert.Equal(t, "workspace-key-demo-7d1f0c52", said["key id"])
	assert.Contains(t, said["secret"], workspacesim.DemoSecret)

	req, err := http.NewRequestWithContext(ctx, http.MethodGet, said["api"]+"/pwa/v3/projects/acme-portal", http.NoBody)
	require.NoError(t, err)
	req.SetBasicAuth(workspacesim.DemoKeyID, workspacesim.DemoSecret)
	assert.Contains(t, get(t, req), `"project_slug":"acme-portal"`)
	req, err = http.NewRequestWithContext(ctx, http.MethodGet, said["admin"]+"/_sim/changes", http.NoBody)
	require.NoError(t, err)
	waiting.Until(t, func() bool { return strings.Contains(get(t, req), `"number":1`) })
	req, err = http.NewRequestWithContext(ctx, http.MethodPut, said["api"]+"/pwa/v3/projects/acme-portal/environments/test/event_log_streaming/DATADOG",
		strings.NewReader(`{"destination_config":{"datadog":{"api_key":"0123456789abcdef","site":"US"}}}`))
	require.NoError(t, err)
	req.SetBasicAuth(workspacesim.DemoKeyID, workspacesim.DemoSecret)
	assert.Contains(t, get(t, req), "Create it in the dashboard", "--strict-streaming")

	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	require.NoError(t, cmd.Wait(), "exits with 0: %s", logs.String())
	assert.Contains(t, logs.String(), "shutting down")
}

// readGreeting reads the program's first lines, by their first words.
func readGreeting(out io.Reader) map[string]string {
	said := map[string]string{}
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), "  ")
		said[name] = strings.TrimSpace(value)
		if strings.HasSuffix(lines.Text(), "lumen-health/test") {
			break
		}
	}
	return said
}

func get(t *testing.T, req *http.Request) string {
	t.Helper()
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return string(body)
}

func TestExitCodes(t *testing.T) {
	t.Parallel()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for name, c := range map[string]struct {
		args []string
		code int
		says string
	}{
		"help":          {[]string{"--help"}, 0, "/_sim/faults"},
		"clean":         {[]string{"--listen", "127.0.0.1:0", "--admin-listen", ""}, 0, "shutting down"},
		"unknown flag":  {[]string{"--nope"}, 2, "unknown flag"},
		"argument":      {[]string{"x"}, 2, "unknown command"},
		"bad option":    {[]string{"--projects", "1000"}, 2, "projects: 1000"},
		"no secret":     {[]string{"--key-id", "mine"}, 2, "--secret"},
		"cannot listen": {[]string{"--listen", "256.0.0.1:1"}, 1, "listen for api"},
		"two statuses":  {[]string{"--strict-streaming", "--new-config-status", "PENDING"}, 2, "strict-streaming"},
		"bad interval":  {[]string{"--change-every", "-1s"}, 2, "--change-every"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out bytes.Buffer
			assert.Equal(t, c.code, run(ended, c.args, &out, &out))
			assert.Contains(t, out.String(), c.says)
		})
	}
}

func TestOwnSecretIsNotPrinted(t *testing.T) {
	t.Parallel()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	var out bytes.Buffer
	args := []string{"--listen", "127.0.0.1:0", "--admin-listen", "", "--key-id", "mine", "--secret", "not-to-be-shown", "-v"}
	assert.Zero(t, run(ended, args, &out, &out))
	assert.NotContains(t, out.String(), "not-to-be-shown")
	assert.Contains(t, out.String(), "mine")
}
