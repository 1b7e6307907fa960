package main

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/testbed/natstest"
	"github.com/auditrelay/auditrelay/internal/testbed/waiting"
	"github.com/auditrelay/auditrelay/internal/testbed/workspacesim"
)

// Two relays share a cluster. The one that has control is killed or frozen again and again,
// while events stream in through a proxy. The other one goes on, the thawed one ends instead of
// doing harm, nothing acknowledged is lost, and there is one trail.
func TestOneOfTwoRelaysHasControl(t *testing.T) {
	s := newScene(t, 300)
	p := newPair(t, s)
	s.waitAcknowledged(t, 200)
	for round := range lives(6, testing.Short()) {
		active := p.active(t)
		frozen := round%2 == 1
		if frozen {
			require.NoError(t, p.relays[active].Process.Signal(syscall.SIGSTOP))
		} else {
			require.NoError(t, p.relays[active].Process.Kill())
			_ = p.relays[active].Wait() // it was killed
		}
		waiting.Until(t, func() bool { return p.hasControl(t, 1-active) }, "round %d: the other relay does not go on: %s", round, p.output[1-active])
		s.waitAcknowledged(t, s.sim.Counts().Acknowledged+200)
		if frozen {
			require.NoError(t, p.relays[active].Process.Signal(syscall.SIGCONT))
			require.Error(t, p.relays[active].Wait(), "round %d: the thawed relay goes on", round)
			assert.Contains(t, p.output[active].String(), "another relay of this cluster has taken over")
		}
		p.start(t, active)
	}
	s.sim.Pause()
	s.settle(t)
	for _, d := range s.destinations {
		tally := s.arrived(t, d)
		t.Logf("%s: acknowledged %d, unique %d, duplicates %d", d.Name(), s.sim.Counts().Acknowledged, tally.Unique, tally.Duplicates)
	}
	active := p.active(t)
	key := publicKeyAt(t, p.admins[active], p.dirs[active])
	out, err := exec.Command("auditrelay", "trail", "verify", "--config", p.configs[active], "--key", key).CombinedOutput()
	require.NoError(t, err, "%s", out)
	assert.NotContains(t, p.output[active].String(), "positions of the journal")
	for i := range p.relays {
		require.NoError(t, p.relays[i].Process.Signal(syscall.SIGTERM))
		assert.NoError(t, p.relays[i].Wait(), "%s", p.output[i])
	}
}

// pair is two relays that have their journal on one server, and a proxy that passes pushes on
// to one that is ready.
type pair struct {
	configs, dirs  [2]string
	ingest, admins [2]string
	relays         [2]*exec.Cmd
	output         [2]*waiting.Output
}

func newPair(t *testing.T, s *scene) *pair {
	t.Helper()
	srv := natstest.Run(t, t.TempDir(), natstest.SyncAlways)
	text, err := os.ReadFile(s.config)
	require.NoError(t, err)
	dir := filepath.Dir(s.config)
	p := &pair{}
	_, listen, _ := strings.Cut(string(text), `ingest: {listen: "`)
	proxy, _, _ := strings.Cut(listen, `"`)
	for i, name := range []string{"a", "b"} {
		p.dirs[i] = filepath.Join(dir, name)
		p.ingest[i], p.admins[i] = freeAddress(t), freeAddress(t)
		own := strings.NewReplacer(
			"data_dir: "+filepath.Join(dir, "data"), "data_dir: "+p.dirs[i],
			`ingest: {listen: "`+proxy, `ingest: {listen: "`+p.ingest[i], s.admin, p.admins[i],
		).Replace(string(text)) + "journal: {url: \"" + srv.ClientURL() + "\", replicas: 1, max_bytes: 256MiB}\naudit: {key_file: " + filepath.Join(dir, "audit.key") + "}\n"
		p.configs[i] = filepath.Join(dir, name+".yaml")
		require.NoError(t, os.WriteFile(p.configs[i], []byte(own), 0o600))
		p.start(t, i)
	}
	p.serve(t, proxy)
	return p
}

func (p *pair) start(t *testing.T, i int) {
	t.Helper()
	p.output[i] = &waiting.Output{}
	cmd := exec.Command("auditrelay", "run", "--config", p.configs[i])
	cmd.Env = append(os.Environ(), "SIM_SECRET="+workspacesim.DemoSecret)
	cmd.Stdout, cmd.Stderr = p.output[i], p.output[i]
	require.NoError(t, cmd.Start())
	p.relays[i] = cmd
	t.Cleanup(func() { _ = cmd.Process.Kill() })
}

func (p *pair) ready(i int) bool {
	client := http.Client{Timeout: 2 * time.Second}
	resp, err := client.Get("http://" + p.admins[i] + "/readyz") //nolint:noctx // the client has a limit; a frozen relay does not answer
	if err != nil {
		return false
	}
	_ = resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

// hasControl reports whether a relay is ready and has the trail and streaming control.
func (p *pair) hasControl(t *testing.T, i int) bool {
	t.Helper()
	if !p.ready(i) {
		return false
	}
	_, text := askPrivate(t, p.admins[i], p.dirs[i], "/status")
	var status struct {
		Cluster struct {
			Doing []string `json:"doing"`
		} `json:"cluster"`
	}
	require.NoError(t, json.Unmarshal(text, &status))
	return slices.Contains(status.Cluster.Doing, "control")
}

// active waits for the relay that has control.
func (p *pair) active(t *testing.T) (i int) {
	t.Helper()
	waiting.Until(t, func() bool {
		for i = range p.relays {
			if p.hasControl(t, i) {
				return true
			}
		}
		return false
	}, "none of the relays has control: %s\n%s", p.output[0], p.output[1])
	return i
}

// serve passes each connection on to a relay that is ready.
func (p *pair) serve(t *testing.T, address string) {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", address)
	require.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			in, err := listener.Accept()
			if err != nil {
				return
			}
			go p.pass(t.Context(), in)
		}
	}()
}

func (p *pair) pass(ctx context.Context, in net.Conn) {
	defer func() { _ = in.Close() }()
	for i := range p.relays {
		if !p.ready(i) {
			continue
		}
		out, err := (&net.Dialer{}).DialContext(ctx, "tcp", p.ingest[i])
		if err != nil {
			continue
		}
		go func() { _, _ = io.Copy(out, in); _ = out.Close() }()
		_, _ = io.Copy(in, out)
		return
	}
}
