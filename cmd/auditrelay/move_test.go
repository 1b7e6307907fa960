package main

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/testbed/natstest"
	"github.com/auditrelay/auditrelay/internal/testbed/readback"
	"github.com/auditrelay/auditrelay/internal/testbed/workspacesim"
)

// A journal is moved to a cluster and back again and again, between runs of its relay, and the
// command is killed at random moments. One sink is away all the while, so that everything is
// undelivered to it. In the end every sink has every acknowledged event once, the spans have
// neither a gap nor an overlap, and events and the trail are proven. AUDITRELAY_MOVE_KILLS says
// how often it is killed.
func TestAMoveKilledAtRandomMomentsLosesNothing(t *testing.T) {
	kills := lives(9, testing.Short())
	if n, err := strconv.Atoi(os.Getenv("AUDITRELAY_MOVE_KILLS")); err == nil {
		kills = n
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	s := newScene(t, 200)
	s.configure(t, "audit: {spans: {interval: 1s, events: 200}}\n")
	m := newMover(t, s, rand.New(rand.NewPCG(seed, 0)))
	for m.killed < kills {
		relay := s.start(t)
		s.waitAcknowledged(t, s.sim.Counts().Acknowledged+100)
		require.NoError(t, relay.Process.Signal(syscall.SIGTERM))
		require.NoError(t, relay.Wait(), "%s", s.output.String())
		m.move(t, min(5, kills-m.killed))
	}
	t.Logf("%d moves, killed %d times, within %v", m.moves, m.killed, m.span)
	back := &readback.File{Path: filepath.Join(t.TempDir(), "back.jsonl")}
	m.away = fmt.Sprintf("{name: away, file: {path: %s, rotate_bytes: -1}}", back.Path)
	m.configure(t)
	relay := s.start(t)
	s.waitAcknowledged(t, s.sim.Counts().Acknowledged+1)
	s.sim.Pause()
	s.settle(t)
	for _, d := range append(s.destinations, back) {
		tally := s.arrived(t, d)
		t.Logf("%s: acknowledged %d, unique %d, duplicates %d", d.Name(), s.sim.Counts().Acknowledged, tally.Unique, tally.Duplicates)
		assert.Zero(t, tally.Duplicates, "a relay that was stopped, and moved, delivers nothing twice")
	}
	s.spansCover(t, back, s.sim.Counts().Acknowledged)
	s.proveSomeEvents(t)
	out, err := exec.Command("auditrelay", "trail", "verify", "--config", s.config, "--key", s.publicKey(t)).CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.NoError(t, relay.Process.Signal(syscall.SIGTERM))
	require.NoError(t, relay.Wait(), "%s", s.output.String())
}

// mover moves the journal of a scene.
type mover struct {
	scene *scene
	rng   *rand.Rand
	text  []byte // of the configuration, without the sink that is away and the place
	away  string // that sink
	url   string // of the cluster

	onCluster     bool
	moves, killed int
	span          time.Duration // a kill comes within
}

func newMover(t *testing.T, s *scene, rng *rand.Rand) *mover {
	t.Helper()
	text, err := os.ReadFile(s.config)
	require.NoError(t, err)
	m := &mover{
		scene: s, rng: rng, text: text, url: natstest.Run(t, t.TempDir()).ClientURL(), span: time.Second,
		away: `{name: away, kafka: {brokers: ["127.0.0.1:1"], topic: away}}`,
	}
	m.configure(t)
	return m
}

// configure writes the configuration for where the journal is.
func (m *mover) configure(t *testing.T) {
	t.Helper()
	text := bytes.Replace(m.text, []byte("sinks:\n"), []byte("sinks:\n  - "+m.away+"\n"), 1)
	if m.onCluster {
		text = fmt.Appendf(text, "journal: {url: %q, replicas: 1}\n", m.url)
	}
	require.NoError(t, os.WriteFile(m.scene.config, text, 0o600))
}

// move moves the journal to the other place. It is killed so many times at most.
func (m *mover) move(t *testing.T, kills int) {
	t.Helper()
	to := m.url
	if m.onCluster {
		to = "disk"
	}
	m.onCluster = !m.onCluster
	m.configure(t)
	m.moves++
	for {
		cmd := exec.Command("auditrelay", "journal", "move", "--config", m.scene.config, "--to", to)
		cmd.Env = append(os.Environ(), "SIM_SECRET="+workspacesim.DemoSecret)
		var out bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &out
		began := time.Now()
		require.NoError(t, cmd.Start())
		if kills > 0 {
			timer := time.AfterFunc(time.Duration(m.rng.Int64N(int64(m.span))), func() { _ = cmd.Process.Kill() })
			defer timer.Stop()
		}
		err := cmd.Wait()
		if err == nil {
			m.span = min(m.span, time.Since(began)*5/4)
			assert.Contains(t, out.String(), "moved: everything of")
			return
		}
		require.EqualError(t, err, "signal: killed", "%s", &out)
		m.killed++
		kills--
	}
}
