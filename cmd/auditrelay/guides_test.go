package main

import (
	"context"
	"fmt"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/testbed/natstest"
	"github.com/auditrelay/auditrelay/internal/testbed/rig"
	"github.com/auditrelay/auditrelay/internal/testbed/waiting"
	"github.com/auditrelay/auditrelay/internal/testbed/workspacesim"
)

// guideConfig is the configuration of the relay that the guides' commands ask.
const guideConfig = `data_dir: %[1]s/data
workspace: {base_url: "%[2]s", key_id: %[3]s, secret: "${WORKSPACE_KEY_SECRET}", requests_per_second: 1000}
environments:
  - project: acme-portal
    environment: production
    credentials:
      - {username: production, password: "${PUSH_PASSWORD}"}
      - {api_key: "${PUSH_KEY}"}
ingest: {listen: "%[4]s"}
admin: {listen: "%[5]s"}
settings: {interval: 200ms}
policies: {packs: [baseline]}
sinks:
  - {name: archive, file: {path: %[1]s/events.jsonl}}
`

// systemctl stands in for systemd, in the commands of the guides.
const systemctl = `#!/bin/bash
stop() { kill "$(cat relay.pid)" && while kill -0 "$(cat relay.pid)" 2>/dev/null; do sleep 0.1; done; }
start() {
  auditrelay run >>relay.log 2>&1 & echo $! >relay.pid
  until auditrelay healthcheck --url "http://$ADMIN/readyz" --timeout 20s 2>/dev/null; do
    kill -0 "$(cat relay.pid)" || { cat relay.log; exit 1; }
    sleep 0.1
  done
}
case $1 in stop|start) $1 ;; restart) stop && start ;; *) exit 1 ;; esac
`

// TestGuidesRun runs the commands of the guides, of the pages of push sources and of reloads, in their order,
// against a relay and the simulated workspace, and a cluster of three NATS servers where they name
// one. It replaces only what each reader replaces: hosts, the place of the configuration, and the
// number of the entry.
func TestGuidesRun(t *testing.T) {
	t.Parallel()
	for _, tool := range []string{"bash", "curl"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("SKIPPED: %s is not here; the commands of the guides are not run", tool)
		}
	}
	pages, err := filepath.Glob("../../deploy/docs/guides/*.md")
	require.NoError(t, err)
	require.NotEmpty(t, pages)
	for _, page := range append(pages, "../../deploy/docs/push-loki.md", "../../deploy/docs/push-datadog.md", "../../deploy/reload.md") {
		t.Run(strings.TrimSuffix(filepath.Base(page), ".md"), func(t *testing.T) {
			t.Parallel()
			text, err := os.ReadFile(page)
			require.NoError(t, err)
			runGuide(t, string(text))
		})
	}
}

const threeServers = "nats://n1:4222,nats://n2:4222,nats://n3:4222"

// natsNode is the command by which this test's binary is one NATS server.
const natsNode = "nats-node"

func beNATSNode() {
	if err := natstest.RunNode(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

var shellBlock = regexp.MustCompile("(?s)\n( *)```sh\n(.*?)\n *```")

func runGuide(t *testing.T, page string) {
	t.Helper()
	dir, cluster := t.TempDir(), ""
	if strings.Contains(page, threeServers) {
		servers, err := natstest.StartCluster(t.Context(), natstest.Options{Command: []string{natsNode}, Dir: t.TempDir(), SyncAlways: true})
		require.NoError(t, err)
		t.Cleanup(servers.Close) // after the relay
		cluster = servers.URL
	}
	sim, err := workspacesim.New(workspacesim.Options{})
	require.NoError(t, err)
	api := httptest.NewServer(sim.Handler())
	t.Cleanup(api.Close)
	free, err := rig.FreeAddresses(t.Context(), 2)
	require.NoError(t, err)
	config := filepath.Join(dir, "relay.yaml")
	write := func(name, text string, mode os.FileMode) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), mode))
	}
	write("relay.yaml", fmt.Sprintf(guideConfig, dir, api.URL, workspacesim.DemoKeyID, free[0], free[1]), 0o600)
	write("systemctl", systemctl, 0o700)
	write("sudo", "#!/bin/bash\nexec \"$@\"\n", 0o700)
	shell := func(script string) (string, error) {
		cmd := exec.CommandContext(context.Background(), "bash", "-euo", "pipefail", "-c", script)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"), "AUDITRELAY_CONFIG="+config, "ADMIN="+free[1],
			"WORKSPACE_KEY_SECRET="+workspacesim.DemoSecret, "PUSH_PASSWORD=a-password-of-some-length", "PUSH_KEY=0123456789abcdef0123456789abcdef")
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	out, err := shell("systemctl start")
	if err != nil { // it may run all the same
		_, _ = shell("systemctl stop")
	}
	require.NoError(t, err, out)
	t.Cleanup(func() {
		out, err := shell("systemctl stop")
		assert.NoError(t, err, out)
	})
	weakened, index := weaken(t, sim, shell)
	require.True(t, weakened)
	replaced := strings.NewReplacer(threeServers, cluster, "https://relay.example.com", "http://"+free[0], "/etc/auditrelay/relay.yaml", config, " 17 ", " "+index+" ",
		" 17\n", " "+index+"\n", "/17.", "/"+index+".", "10GiB", "64MiB", "auditrelay healthcheck", "auditrelay healthcheck --url http://"+free[1]+"/readyz")
	blocks := shellBlock.FindAllStringSubmatch(page, -1)
	require.NotEmpty(t, blocks)
	for _, block := range blocks {
		script := replaced.Replace(strings.ReplaceAll("\n"+block[2]+"\n", "\n"+block[1], "\n"))
		out, err := shell(script)
		assert.NoError(t, err, "%s\n%s", script, out)
	}
}

// weaken weakens the password policy, and waits until a checkpoint covers the entry about it.
func weaken(t *testing.T, sim *workspacesim.Simulator, shell func(string) (string, error)) (done bool, index string) {
	t.Helper()
	const list = "auditrelay trail list --setting password_strength_config --output json"
	waiting.Until(t, func() bool {
		out, err := shell(list + " --all")
		return err == nil && strings.Contains(out, "settings.baseline")
	})
	_, err := sim.WeakenPasswords("acme-portal", "production")
	require.NoError(t, err)
	found := regexp.MustCompile(`"index": *([0-9]+)`)
	waiting.Until(t, func() bool {
		out, err := shell(list + " --direction weaker")
		if m := found.FindStringSubmatch(out); err == nil && m != nil {
			index = m[1]
			_, err = shell("auditrelay trail prove " + index + " --dir waited-" + index)
			return err == nil
		}
		return false
	})
	return index != "", index
}
