package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/testbed/workspacesim"
)

func readFile(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("..", "..", path))
	require.NoError(t, err)
	return string(data)
}

// quickStart is the first YAML of the README's quick start; deploy/quickstart
// runs it.
func quickStart(t *testing.T) string {
	t.Helper()
	_, section, found := strings.Cut(readFile(t, "README.md"), "\n## Quick start")
	require.True(t, found)
	_, yaml, found := strings.Cut(section, "```yaml\n")
	require.True(t, found)
	yaml, _, found = strings.Cut(yaml, "```")
	require.True(t, found)
	return strings.ReplaceAll("\n"+yaml, "\n   ", "\n")
}

// TestOneSetOfNames: README, config init, container and unit use the same files,
// variables, projects, sinks and topics.
func TestOneSetOfNames(t *testing.T) {
	t.Parallel()
	const file = "/etc/auditrelay/relay.yaml"
	example, start := string(config.Example()), quickStart(t)
	unit, compose := readFile(t, "deploy/systemd/auditrelay.service"), readFile(t, "deploy/compose/compose.yaml")
	docker, readme := readFile(t, "Dockerfile"), readFile(t, "README.md")

	for name, text := range map[string]string{"README": readme, "unit": unit, "compose": compose, "Dockerfile": docker} {
		assert.Contains(t, text, file, name)
	}
	for name, text := range map[string]string{"README": readme, "unit": unit, "compose": compose, "Dockerfile": docker, "config init": example} {
		assert.NotContains(t, text, "config.yaml", name)
		assert.NotContains(t, text, "auditrelay.yaml", name)
	}
	for _, variable := range regexp.MustCompile(`\$\{[A-Z_]+\}`).FindAllString(start, -1) {
		assert.Contains(t, example, variable, "config init")
		assert.Contains(t, compose, strings.Trim(variable, "${}")+":", "compose")
		assert.Contains(t, unit, strings.Trim(variable, "${}")+"=", "unit")
		assert.Contains(t, readme, strings.Trim(variable, "${}")+"=", "README")
	}
	for _, same := range []string{
		"data_dir: /var/lib/auditrelay", "project: my-project", "environment: production", "hostname: relay.example.com",
		"base_url: https://management.example.com", "name: archive", "path: /var/lib/auditrelay/archive/events.jsonl",
		"cert_file: /etc/auditrelay/tls.crt", "key_file: /etc/auditrelay/tls.key",
	} {
		assert.Contains(t, start, same, "README's quick start")
		assert.Contains(t, example, same, "config init")
	}
	assert.Contains(t, docker, "mkdir -p -m 700 /out/data", "a new volume takes its mode")
	assert.Contains(t, readme, "topic: auditrelay.events")
	assert.Contains(t, example, "topic: auditrelay.events")
	for _, path := range []string{"StateDirectory=auditrelay\n", "cert_file: /etc/auditrelay/tls.crt", "key_file: /etc/auditrelay/tls.key"} {
		assert.Contains(t, unit, path)
	}
}

// TestQuickStartIsValid checks the README's YAML as it stands.
func TestQuickStartIsValid(t *testing.T) {
	t.Parallel()
	cfg, warnings, err := config.Parse("README.md", []byte(quickStart(t)), func(name string) (string, bool) {
		return "x", slices.Contains([]string{"WORKSPACE_KEY_ID", "WORKSPACE_KEY_SECRET"}, name)
	})
	require.NoError(t, err)
	assert.Empty(t, warnings)
	assert.Len(t, cfg.Sinks, 1)
}

// TestTheTrialIsValid: the README's configuration to try it with is one.
func TestTheTrialIsValid(t *testing.T) {
	t.Parallel()
	_, trial, found := strings.Cut(readFile(t, "README.md"), "Write `relay.yaml`:\n")
	require.True(t, found)
	trial, _, found = strings.Cut(trial, "\nRun, each in")
	require.True(t, found)
	cfg, _, err := config.Parse("README.md", []byte(strings.ReplaceAll(trial, "\n    ", "\n")), nil)
	require.NoError(t, err)
	assert.Len(t, cfg.Sinks, 1)
	assert.Equal(t, workspacesim.DemoKeyID, cfg.Workspace.KeyID)
	assert.Equal(t, workspacesim.DemoSecret, cfg.Workspace.Secret.Reveal())
}

// maxExposure bounds the unit's exposure by systemd-analyze, times ten: 0 is safe, 100
// is not.
const maxExposure = 15

func systemdVersion(t *testing.T, analyze string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), analyze, "--version").Output()
	require.NoError(t, err)
	return string(out)
}

// TestUnit has systemd itself read the unit.
func TestUnit(t *testing.T) {
	t.Parallel()
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("SKIPPED: systemd-analyze is not here (Debian: apt-get install systemd); the unit is not verified")
	}
	// Its program need not be installed here.
	unit := filepath.Join(t.TempDir(), "auditrelay.service")
	text := strings.ReplaceAll(readFile(t, "deploy/systemd/auditrelay.service"), "/usr/local/bin/auditrelay", "/bin/true")
	require.Contains(t, text, "Type=notify-reload\n")
	if number := regexp.MustCompile(`\d+`).FindString(systemdVersion(t, analyze)); number < "253" {
		t.Log("SKIPPED: Type=notify-reload is not verified, since systemd " + number + " does not know it")
		text = strings.ReplaceAll(text, "Type=notify-reload\n", "Type=notify\n")
	}
	require.NoError(t, os.WriteFile(unit, []byte(text), 0o600))

	socket := filepath.Join(filepath.Dir(unit), "auditrelay.socket")
	require.NoError(t, os.WriteFile(socket, []byte(readFile(t, "deploy/systemd/auditrelay.socket")), 0o600))
	out, err := exec.CommandContext(t.Context(), analyze, "verify", "--man=no", unit, socket).CombinedOutput()
	require.NoError(t, err, string(out))
	assert.Empty(t, string(out))
	out, err = exec.CommandContext(t.Context(), analyze, "security", "--offline=true", "--no-pager", "--threshold="+strconv.Itoa(maxExposure), unit).CombinedOutput()
	require.NoError(t, err, "exposed by more than %d: %s", maxExposure, out)
	t.Log(regexp.MustCompile(`Overall exposure.*`).FindString(string(out)))
}
