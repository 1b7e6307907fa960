package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/testbed/kafkatest"
	"github.com/auditrelay/auditrelay/internal/testbed/natstest"
	"github.com/auditrelay/auditrelay/internal/testbed/readback"
	"github.com/auditrelay/auditrelay/internal/testbed/rig"
	"github.com/auditrelay/auditrelay/internal/testbed/waiting"
	"github.com/auditrelay/auditrelay/internal/testbed/workspacesim"
	"github.com/auditrelay/auditrelay/internal/trail/eventproof"
)

// Processes are killed without warning while events stream in and settings change.
// Every acknowledged event must stand at every sink, and every change in the audit
// events, whatever line the process died on. The deliveries to Kafka overtake each
// other; that must lose nothing either.
func TestKilledUnderLoadNothingIsLost(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	s := newScene(t, 600)
	s.configure(t, "audit: {spans: {interval: 1s, events: 200}}\n")
	relay := s.start(t)
	for round := range lives(6, testing.Short()) {
		// Somewhere in the next few hundred milliseconds: in a commit, between
		// two, in a delivery, or while it starts.
		s.waitAcknowledged(t, s.sim.Counts().Acknowledged+rng.Uint64N(300)+1)
		require.NoError(t, relay.Process.Kill())
		_ = relay.Wait() // it was killed
		t.Logf("round %d: killed with %d events acknowledged", round, s.sim.Counts().Acknowledged)
		relay = s.start(t)
	}
	s.sim.Pause()
	s.settle(t)
	acknowledged := s.sim.Counts().Acknowledged
	require.Positive(t, acknowledged)
	for _, d := range s.destinations {
		tally := s.arrived(t, d)
		t.Logf("%s: acknowledged %d, unique %d, duplicates %d, lost %d", d.Name(), acknowledged, tally.Unique, tally.Duplicates, tally.Missing(s.sim.Ledgers()))
	}
	s.spansCover(t, s.destinations[2], acknowledged)
	s.proveSomeEvents(t)
	assert.NoError(t, relay.Process.Signal(syscall.SIGTERM))
	assert.NoError(t, relay.Wait(), "a clean shutdown exits with 0: %s", s.output.String())
}

// lives is how many lives of a process a test plays: all of them, or a third in a short run.
func lives(n int, short bool) int {
	if short {
		return n / 3
	}
	return n
}

// spansCover waits until the spans cover so many events. They have no gap and no overlap.
func (s *scene) spansCover(t *testing.T, d readback.Destination, acknowledged uint64) {
	t.Helper()
	var spans []eventproof.Span
	s.read(t, d, func(events []received) bool {
		bodies := map[string][]byte{} // an event may come twice
		for _, e := range events {
			bodies[e.id] = e.body
		}
		covered := uint64(0)
		spans = nil
		for _, body := range bodies {
			var e struct {
				Type   string          `json:"type"`
				Detail eventproof.Span `json:"detail"`
			}
			if json.Unmarshal(body, &e) == nil && e.Type == eventproof.Type {
				spans = append(spans, e.Detail)
				covered += uint64(e.Detail.Events)
			}
		}
		return covered >= acknowledged
	})
	slices.SortFunc(spans, func(a, b eventproof.Span) int { return cmp.Compare(a.First, b.First) })
	next := uint64(1)
	for _, span := range spans {
		assert.Equal(t, next, span.First, "it begins behind the one before")
		assert.Empty(t, span.Missing)
		next = span.Last + 1
	}
	t.Logf("%d spans up to position %d", len(spans), next-1)
}

// A shutdown under load ends within its deadline with exit code 0, and the next start
// delivers all acknowledged events.
func TestShutdownUnderLoad(t *testing.T) {
	s := newScene(t, 1000)
	relay := s.start(t)
	s.waitAcknowledged(t, 600)
	require.NoError(t, relay.Process.Signal(syscall.SIGTERM))
	require.NoError(t, relay.Wait(), "%s", s.output.String()) // it exits with 1 after its deadline
	s.sim.Pause()
	relay = s.start(t)
	s.settle(t)
	for _, d := range s.destinations {
		s.arrived(t, d)
	}
	require.NoError(t, relay.Process.Signal(syscall.SIGTERM))
	require.NoError(t, relay.Wait())
}

// scene surrounds a relay process: the simulated workspace and three destinations live
// through the relay's crashes.
type scene struct {
	sim          *workspacesim.Simulator
	destinations []readback.Destination
	config       string // path
	admin        string // HOST:PORT
	output       bytes.Buffer
}

// newScene has a workspace with so many events a second. While the relay is away they
// pile up, so a high rate would make a slow machine's test much longer.
func newScene(t *testing.T, rate float64) *scene {
	t.Helper()
	return newSceneOf(t, rate, workspacesim.Options{Projects: 1, RetryMax: 200 * time.Millisecond})
}

func newSceneOf(t *testing.T, rate float64, options workspacesim.Options) *scene {
	t.Helper()
	dir := t.TempDir()
	sim, err := workspacesim.New(options)
	require.NoError(t, err)
	environments := sim.Environments()
	require.NoError(t, sim.SetRate("", "", rate/float64(len(environments))))
	api := httptest.NewServer(sim.Handler())
	t.Cleanup(api.Close)
	kafka, err := kafkatest.StartStandIn(nil)
	require.NoError(t, err)
	t.Cleanup(kafka.Close)
	nats, err := natstest.Start(filepath.Join(dir, "nats"))
	require.NoError(t, err)
	t.Cleanup(nats.Close)
	file := &readback.File{Path: filepath.Join(dir, "events.jsonl")}
	s := &scene{
		sim: sim, destinations: []readback.Destination{kafka.On("events"), nats.Stream("EVENTS"), file},
		config: filepath.Join(dir, "relay.yaml"), admin: freeAddress(t),
	}
	listen := freeAddress(t)
	text := fmt.Sprintf(`data_dir: %s
shutdown_timeout: 5m
workspace: {base_url: "%s", key_id: %s, secret: "${SIM_SECRET}", requests_per_second: 1000}
ingest: {listen: "%s"}
admin: {listen: "%s"}
settings: {interval: 500ms}
sinks:
  - {name: kafka, parallel: 4, batch_events: 100, kafka: {brokers: ["%s"], topic: events, create_topic: true}}
  - {name: nats, nats: {url: "%s", create_stream: EVENTS}}
  - {name: file, file: {path: %s, rotate_bytes: -1}}
environments:
`, filepath.Join(dir, "data"), api.URL, workspacesim.DemoKeyID, listen, s.admin, kafka.Brokers[0], nats.URL, file.Path)
	for _, e := range environments {
		text += fmt.Sprintf("  - {project: %s, environment: %s, stream: {relay: {hostname: %q}}}\n", e.Project, e.Environment, listen)
	}
	require.NoError(t, os.WriteFile(s.config, []byte(text), 0o600))
	sim.Start(t.Context())
	t.Cleanup(sim.Stop)
	return s
}

// proveSomeEvents proves lines of the file sink by command, and verifies the bundles without
// the relay. A changed event is not proven.
func (s *scene) proveSomeEvents(t *testing.T) {
	t.Helper()
	sink, err := os.ReadFile(s.destinations[2].(*readback.File).Path)
	require.NoError(t, err)
	lines := bytes.Split(bytes.TrimSpace(sink), []byte("\n"))
	dir := t.TempDir()
	event, key := filepath.Join(dir, "event.json"), s.publicKey(t)
	run := func(args ...string) error {
		out, err := exec.Command("auditrelay", append([]string{"trail", "prove-event"}, args...)...).CombinedOutput()
		t.Logf("%s", bytes.TrimSpace(out))
		return err
	}
	for i, line := range [][]byte{lines[0], lines[len(lines)/2], lines[len(lines)/3]} {
		if !bytes.Contains(line, []byte(`"type":"event_log`)) {
			continue
		}
		require.NoError(t, os.WriteFile(event, line, 0o600))
		bundle := filepath.Join(dir, fmt.Sprint(i))
		waiting.Until(t, func() bool { // the entry's checkpoint may be a moment away
			_ = os.Remove(bundle)
			return run(event, "--config", s.config, "--file", bundle) == nil
		})
		require.NoError(t, run(event, "--verify", bundle, "--key", key))
		var e struct {
			ID   string          `json:"id"`
			Data json.RawMessage `json:"data"`
		}
		require.NoError(t, json.Unmarshal(line, &e))
		body := filepath.Join(dir, "body")
		require.NoError(t, os.WriteFile(body, e.Data, 0o600))
		require.NoError(t, run(e.ID, "--body", body, "--verify", bundle, "--key", key))
		require.Error(t, run(e.ID, "--body", event, "--verify", bundle, "--key", key))
		require.NoError(t, os.WriteFile(event, bytes.Replace(line, []byte(`"data":{`), []byte(`"data":{ `), 1), 0o600))
		require.Error(t, run(event, "--verify", bundle, "--key", key))
	}
}

// publicKey is the trail's, as the running relay states it once the trail is open.
func (s *scene) publicKey(t *testing.T) (key string) {
	t.Helper()
	return publicKeyAt(t, s.admin, filepath.Join(filepath.Dir(s.config), "data"))
}

func publicKeyAt(t *testing.T, admin, dataDir string) (key string) {
	t.Helper()
	waiting.Until(t, func() bool {
		_, text := askPrivate(t, admin, dataDir, "/status")
		var status struct {
			Trail struct {
				PublicKey string `json:"public_key"`
			} `json:"trail"`
		}
		require.NoError(t, json.Unmarshal(text, &status))
		key = status.Trail.PublicKey
		return key != ""
	}, "the trail has no public key")
	return key
}

// configure adds a section to the configuration.
func (s *scene) configure(t *testing.T, section string) {
	t.Helper()
	text, err := os.ReadFile(s.config)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(s.config, append(text, section...), 0o600))
}

func freeAddress(t *testing.T) string {
	t.Helper()
	free, err := rig.FreeAddresses(t.Context(), 1)
	require.NoError(t, err)
	return free[0]
}

// start starts `auditrelay run`, and does not wait for it.
func (s *scene) start(t *testing.T) *exec.Cmd {
	t.Helper()
	s.output.Reset()
	cmd := exec.Command("auditrelay", "run", "--config", s.config)
	cmd.Env = append(os.Environ(), "SIM_SECRET="+workspacesim.DemoSecret)
	cmd.Stdout, cmd.Stderr = &s.output, &s.output
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	return cmd
}

// waitAcknowledged waits until the relay has acknowledged n events.
func (s *scene) waitAcknowledged(t *testing.T, n uint64) {
	t.Helper()
	acknowledged := func() any { return s.sim.Counts().Acknowledged }
	waiting.While(t, acknowledged, func() bool { return s.sim.Counts().Acknowledged >= n },
		"%d events are not acknowledged; the relay printed:\n%s", n, &s.output)
}

// settle waits until the paused simulator has no event left to push.
func (s *scene) settle(t *testing.T) {
	t.Helper()
	settled := make(chan error, 1)
	go func() { settled <- s.sim.Wait(t.Context()) }()
	left := func() any { return s.sim.Counts().InFlight }
	waiting.While(t, left, func() bool { return len(settled) == 1 }, "not all is acknowledged; the relay printed:\n%s", &s.output)
	require.NoError(t, <-settled)
}

// arrived counts the events at a destination, once no acknowledged one is missing.
func (s *scene) arrived(t *testing.T, d readback.Destination) (tally workspacesim.Tally) {
	t.Helper()
	s.read(t, d, func(events []received) bool {
		tally = tallyOf(events)
		return tally.Missing(s.sim.Ledgers()) == 0
	})
	return tally
}

// received is an event at a destination.
type received struct {
	id   string
	body []byte
}

func tallyOf(events []received) (tally workspacesim.Tally) {
	for _, e := range events {
		tally.Add(e.id)
	}
	return tally
}

// read reads a destination whole, again and again, until it is enough.
func (s *scene) read(t *testing.T, d readback.Destination, enough func([]received) bool) {
	t.Helper()
	var events []received
	waiting.While(t, func() any { return len(events) }, func() bool {
		events = nil
		ctx, cancel := context.WithTimeout(t.Context(), waiting.Stall)
		defer cancel()
		err := d.Read(ctx, func(id string, body []byte) { events = append(events, received{id, bytes.Clone(body)}) })
		return err == nil && enough(events)
	}, "%s: events are missing", d.Name())
}
