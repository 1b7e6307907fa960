package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/cmd/auditrelay/cli"
	"github.com/auditrelay/auditrelay/internal/testbed/waiting"
	"github.com/auditrelay/auditrelay/internal/testbed/workspacesim"
)

// The example of deploy/migration.md is planned as it says, and run on record.
func TestTheMigrationOfTheDocument(t *testing.T) {
	t.Parallel()
	o := newOffice(t, "")
	o.start(t)
	page := readFile(t, "deploy/migration.md")
	block := func(kind string) string {
		m := regexp.MustCompile("(?s)```" + kind + "\n(.*?)```").FindStringSubmatch(page)
		require.NotNil(t, m, kind)
		return m[1]
	}
	rows := filepath.Join(t.TempDir(), "users.jsonl")
	require.NoError(t, os.WriteFile(rows, []byte(block("jsonl")), 0o600))
	migrate := func(exit int, args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "auditrelay", append([]string{"migrate"}, args...)...)
		cmd.Env = append(os.Environ(), "SIM_SECRET="+workspacesim.DemoSecret)
		out, _ := cmd.CombinedOutput()
		require.Equal(t, exit, cmd.ProcessState.ExitCode(), "%v: %s", args, out)
		return string(out)
	}
	file := []string{"--from", rows, "--passwords", "scoped"}
	assert.Equal(t, block("text"), migrate(cli.ExitOK, append([]string{"plan"}, file...)...))
	assert.Contains(t, migrate(cli.ExitTrouble, append([]string{"status"}, file...)...), "not_sent  4")

	secret := filepath.Join(t.TempDir(), "secret")
	run := func(exit int, id, key string, args ...string) string {
		t.Helper()
		require.NoError(t, os.WriteFile(secret, []byte(key+"\n"), 0o600))
		args = append(append([]string{"run", o.name, "--config", o.config, "--api-url", o.api, "--project-id", id, "--secret-file", secret}, file...), args...)
		return migrate(exit, args...)
	}
	yes := []string{"--yes", "--reason", "CHG-21"}
	id, key := workspacesim.DemoProjectID, workspacesim.DemoProjectSecret
	assert.Contains(t, run(cli.ExitFailure, id, key), "give --yes")
	assert.Contains(t, run(cli.ExitUsage, id, key, "--yes"), "--yes needs --reason")
	for _, wrong := range [][2]string{{workspacesim.DemoKeyID, key}, {id, workspacesim.DemoSecret}} {
		assert.Contains(t, run(cli.ExitFailure, wrong[0], wrong[1], yes...), "the workspace's management key, which is never sent")
	}
	assert.Contains(t, run(cli.ExitFailure, id, key, append(yes, "--api-url", "http://api.example.com")...), "https is required")
	require.Zero(t, o.sim.Migrated().Requests)
	assert.Contains(t, run(cli.ExitFailure, id, "another-secret", yes...), "401 unauthorized_credentials")
	require.Zero(t, o.sim.Migrated().Requests)

	assert.Regexp(t, `done +4\n`, run(cli.ExitOK, id, key, yes...))
	assert.Len(t, o.sim.Migrated().Rows, 4)
	assert.Contains(t, run(cli.ExitFailure, "project-of-others-1", key, yes...), "are of the project "+id+": for project-of-others-1, give a copy of ")
	assert.Regexp(t, `done +4\n`, migrate(cli.ExitOK, append([]string{"status"}, file...)...))
	started := o.told(t, `"type":"migration.started"`, "a migration begins: 4 requests for 1 organizations, 2 members, 1 passwords and 0 sessions", `"reason":"CHG-21"`, `"user":`)
	ended := o.told(t, `"type":"migration.ended"`, "a migration has ended: 4 rows are done, and 0 are not", `"outcomes":{"done":4}`, `"open":0`)
	for _, told := range []string{started, ended, o.output.String()} {
		assert.NotContains(t, told, "@acme.example")
		assert.NotContains(t, told, "$2b$")
		assert.NotContains(t, told, key)
	}
	list, err := exec.CommandContext(t.Context(), "auditrelay", "trail", "list", "--config", o.config, "--type", "migration.*").CombinedOutput()
	require.NoError(t, err, "%s", list)
	assert.Contains(t, string(list), "a migration has ended: 4 rows are done, and 0 are not")
	waiting.Until(t, func() bool {
		out, err := exec.CommandContext(t.Context(), "auditrelay", "status", "--output", "json", "--config", o.config).Output()
		return (err == nil || len(out) > 0) && strings.Contains(string(out), "explains far more events than usual")
	}, "health does not explain the events")
}
