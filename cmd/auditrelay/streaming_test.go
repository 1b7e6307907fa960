package main

import (
	"encoding/json"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/cmd/auditrelay/cli"
	"github.com/auditrelay/auditrelay/internal/control/console"
	"github.com/auditrelay/auditrelay/internal/testbed/waiting"
	"github.com/auditrelay/auditrelay/internal/testbed/workspacesim"
	"github.com/auditrelay/auditrelay/internal/workspace/streaming"
)

// streaming runs one of the streaming commands, and returns its standard output and error.
func (o *office) streaming(t *testing.T, exit int, args ...string) (stdout, stderr string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "auditrelay", append(append([]string{"streaming"}, args...), "--config", o.config)...)
	var errs writer
	cmd.Stderr = &errs
	out, _ := cmd.Output()
	require.Equal(t, exit, cmd.ProcessState.ExitCode(), "%v: %s%s", args, out, errs)
	return string(out), string(errs)
}

type writer []byte

func (w *writer) Write(p []byte) (int, error) { *w = append(*w, p...); return len(p), nil }

// A person compares the streaming config and has it set, once, with a reason; the relay
// itself only observes.
func TestStreamingFromTheCommandLine(t *testing.T) {
	t.Parallel()
	o := newOffice(t, `, mode: observe, stream: {relay: {hostname: "127.0.0.1:1"}}`)
	require.NoError(t, o.sim.CreateStreaming(o.env.Project, o.env.Environment, "GRAFANA_LOKI",
		json.RawMessage(`{"grafana_loki":{"hostname":"logs.example.com","username":"u","password":"pass-word-1234"}}`)))
	o.start(t)
	waiting.Until(t, func() bool {
		cmd := exec.CommandContext(t.Context(), "auditrelay", "streaming", "plan", "--config", o.config)
		return cmd.Run() != nil && cmd.ProcessState.ExitCode() == cli.ExitTrouble
	}, "no difference is planned")
	out, _ := o.streaming(t, cli.ExitTrouble, "plan", o.name)
	assert.Contains(t, out, o.name+": would change (mode observe, status ACTIVE)")
	assert.Regexp(t, `\* hostname +logs\.example\.com +127\.0\.0\.1:1\n`, out)
	assert.Regexp(t, `  destination_type +GRAFANA_LOKI +GRAFANA_LOKI\n`, out)
	assert.Regexp(t, `\* secret +…1234 +\(a new one\)\n`, out)
	out, _ = o.streaming(t, cli.ExitTrouble, "plan", "--output", "json")
	var planned []console.Planned
	require.NoError(t, json.Unmarshal([]byte(out), &planned))
	assert.True(t, planned[0].Preview.Differs)
	out, _ = o.streaming(t, cli.ExitTrouble, "status")
	assert.Regexp(t, o.name+` +observe +GRAFANA_LOKI logs\.example\.com +ACTIVE +differs: hostname, username`, out)

	_, said := o.streaming(t, cli.ExitFailure, "apply", o.name)
	assert.Contains(t, said, "Set it?")
	_, said = o.streaming(t, cli.ExitUsage, "apply", o.name, "--yes", "--reason", " ")
	assert.Contains(t, said, "--yes needs --reason")
	_, said = o.streaming(t, cli.ExitFailure, "apply", "no/such", "--yes", "--reason", "x")
	assert.Contains(t, said, "no stream for this environment")
	o.streaming(t, cli.ExitUsage, "plan", "shop")
	out, _ = o.streaming(t, cli.ExitFailure, "plan", "no/such")
	assert.Contains(t, out, "no/such: cannot be compared")
	require.Zero(t, o.writes.Load())

	out, said = o.streaming(t, cli.ExitOK, "apply", o.name, "--yes", "--reason", "CHG-17")
	assert.Contains(t, out, "is set\n")
	assert.Contains(t, said, "would change", "the plan is shown before")
	require.EqualValues(t, 1, o.writes.Load())
	o.told(t, "streaming.put_intended", "CHG-17")
	out, _ = o.streaming(t, cli.ExitOK, "plan")
	assert.Contains(t, out, "would change: 0, as desired: 1, not compared: 0\n")

	out, _ = o.streaming(t, cli.ExitOK, "rotate", o.name, "--reason", "CHG-18")
	assert.Contains(t, out, "is rotated")
	o.told(t, "streaming.put_ended", "CHG-18", `"reason":["rotation"]`)
	require.EqualValues(t, 2, o.writes.Load())
	require.NoError(t, o.sim.SetStreamingStatus(o.env.Project, o.env.Environment, workspacesim.StatusDisabled))
	out, _ = o.streaming(t, cli.ExitOK, "plan", o.name)
	assert.Contains(t, out, "enable it in the dashboard")
	var list []streaming.Health
	waiting.Until(t, func() bool {
		text, _ := exec.CommandContext(t.Context(), "auditrelay", "streaming", "status", "-o", "json", "--config", o.config).Output()
		return json.Unmarshal(text, &list) == nil && len(list) == 1
	})
}
