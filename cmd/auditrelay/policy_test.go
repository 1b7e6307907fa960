package main

import (
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/cmd/auditrelay/cli"
)

// A setting violates a rule, and is put back: both are entries, which every sink gets, and the
// commands tell of them, of a running relay and of a stopped one. The rule is then excepted by a
// reload.
func TestPolicies(t *testing.T) {
	t.Parallel()
	o := newOffice(t, "")
	policies := `policies:
  rules: [{name: name, setting: project, cel: '!state.name.startsWith("Bad")', reason: names are shown to customers, severity: critical}]
`
	o.append(t, policies)
	relay := o.start(t)
	o.told(t, "settings.baseline", `"subject":"project"`)
	assert.Equal(t, "no rule is violated\n", o.command(t, cli.ExitOK, "policy", "status"))
	assert.Equal(t, "[]\n", o.command(t, cli.ExitOK, "policy", "status", "--output", "json"))
	assert.Contains(t, o.command(t, cli.ExitOK, "policy", "list"), "baseline/password_length")

	o.run(t, cli.ExitOK, "project", "rename", o.env.Project, "Bad", "--reason", "CHG-1", "--yes")
	o.told(t, "policy.violated", "the policy name is violated by project: names are shown to customers", `"severity":"critical"`)
	assert.Contains(t, o.command(t, cli.ExitTrouble, "policy", "status"), "names are shown to customers")
	assert.Contains(t, o.command(t, cli.ExitTrouble, "policy", "test"), "names are shown to customers")
	assert.Contains(t, o.command(t, cli.ExitOK, "trail", "list", "--type", "policy.violated"), "critical")

	o.command(t, cli.ExitOK, "config", "diff")
	o.append(t, "  exceptions: [{rule: name, until: 2999-01-31, reason: CHG-2}]\n")
	assert.Contains(t, o.command(t, cli.ExitTrouble, "config", "diff"), "policies.exceptions")
	assert.Contains(t, o.command(t, cli.ExitTrouble, "config", "diff", o.config), "live")
	assert.Contains(t, o.command(t, cli.ExitFailure, "config", "diff", o.config+".none"), "no such file")
	o.command(t, cli.ExitOK, "reload")
	o.told(t, "relay.reloaded", "/policies/exceptions")
	o.told(t, "policy.ended", "excepted until 2999-01-31T00:00:00Z: CHG-2")
	assert.Contains(t, o.command(t, cli.ExitOK, "policy", "status"), "CHG-2")

	o.run(t, cli.ExitOK, "project", "rename", o.env.Project, "Good", "--reason", "CHG-3", "--yes")
	o.told(t, "policy.ended", "the policy name is no longer violated")
	require.NoError(t, relay.Process.Signal(syscall.SIGTERM))
	require.NoError(t, relay.Wait())
	assert.NotContains(t, o.command(t, cli.ExitOK, "policy", "status", "--offline"), "customers")
}

// append adds text to the configuration.
func (o *office) append(t *testing.T, text string) {
	t.Helper()
	f, err := os.OpenFile(o.config, os.O_APPEND|os.O_WRONLY, 0)
	require.NoError(t, err)
	_, err = f.WriteString(text)
	require.NoError(t, err)
	require.NoError(t, f.Close())
}

// command runs one with the configuration.
func (o *office) command(t *testing.T, exit int, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "auditrelay", append(args, "--config", o.config)...)
	cmd.Env = append(os.Environ(), "SIM_SECRET=x")
	out, _ := cmd.CombinedOutput()
	require.Equal(t, exit, cmd.ProcessState.ExitCode(), "%v: %s", args, out)
	return string(out)
}
