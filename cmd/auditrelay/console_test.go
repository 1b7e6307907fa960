package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/auditrelay/auditrelay/cmd/auditrelay/cli"
	"github.com/auditrelay/auditrelay/internal/control/console"
	"github.com/auditrelay/auditrelay/internal/testbed/kafkatest"
	"github.com/auditrelay/auditrelay/internal/testbed/waiting"
	"github.com/auditrelay/auditrelay/internal/testbed/workspacesim"
	"github.com/auditrelay/auditrelay/internal/trail/timeline"
)

// An event too large for Kafka goes to the dead letters, and arrives once the topic
// takes it.
func TestDeadLettersFromTheCommandLine(t *testing.T) {
	t.Parallel()
	s := newStand(t, 20_000)
	relay := s.start(t)
	large := incompressible(30_000)
	s.push(t, map[string]string{"small-1": "a", "large": large, "small-2": "b"})
	s.eventually(t, 1)

	table := s.run(t, cli.ExitOK, "deadletters", "list", "--sink", "kafka", "--reason", "TOO LARGE")
	assert.Contains(t, table, "NUMBER")
	assert.Contains(t, table, "acme/live")
	assert.NotContains(t, table, large[:20], "a list shows no bodies")
	assert.Equal(t, "no dead letters\n", s.run(t, cli.ExitOK, "deadletters", "list", "--until", "2h ago"))
	checkHistory(t, s)
	letter := s.letters(t)[0]
	assert.Equal(t, []any{"large", "kafka", ""}, []any{letter.ID, letter.Sink, string(letter.Body)})
	number := fmt.Sprint(letter.Sequence)
	assert.Contains(t, s.run(t, cli.ExitOK, "deadletters", "show", number), large)
	line := s.run(t, cli.ExitOK, "deadletters", "export")
	line, _, _ = strings.Cut(line, "\n")
	assert.True(t, json.Valid([]byte(line)), line)
	assert.Contains(t, line, large)
	assert.Contains(t, line, `"specversion":"1.0"`)

	assert.Contains(t, s.run(t, cli.ExitOK, "deadletters", "replay", "--dry-run"), "1 dead letters would be replayed\n  kafka: 1")
	assert.Contains(t, s.run(t, cli.ExitFailure, "deadletters", "replay"), "0 delivered, 1 refused again")
	again := s.letters(t)[0]
	assert.Greater(t, again.Attempts, letter.Attempts)
	assert.Contains(t, s.run(t, cli.ExitFailure, "deadletters", "show", number), "there is no dead letter "+number)
	assert.Contains(t, s.run(t, cli.ExitFailure, "deadletters", "discard"), "give --yes")

	s.limitMessages(t, 1<<20)
	assert.Contains(t, s.run(t, cli.ExitOK, "deadletters", "replay", "--id", "large"), "1 dead letters: 1 delivered, 0 refused again")
	assert.Equal(t, "no dead letters\n", s.run(t, cli.ExitOK, "deadletters", "list"))
	assert.Equal(t, map[string]int{"small-1": 1, "small-2": 1, "large": 1}, s.arrived(t))
	assert.Contains(t, s.run(t, cli.ExitOK, "deadletters", "discard", "--yes"), "0 dead letters would be discarded")
	s.end(t, relay)
	assert.Contains(t, s.run(t, cli.ExitFailure, "deadletters", "list"), "no relay runs on the data directory")
}

// checkHistory asks what became of the deliveries to the sink, one of which was refused.
func checkHistory(t *testing.T, s *stand) {
	t.Helper()
	delivered, refused := int64(0), int64(0)
	waiting.Until(t, func() bool { // a letter is there before it is counted
		var h struct {
			Minutes []struct{ Delivered, Refused int64 }
		}
		require.NoError(t, json.Unmarshal([]byte(s.run(t, cli.ExitOK, "sinks", "history", "kafka", "--json")), &h))
		delivered, refused = 0, 0
		for _, m := range h.Minutes {
			delivered, refused = delivered+m.Delivered, refused+m.Refused
		}
		return refused > 0
	})
	assert.GreaterOrEqual(t, delivered, int64(2), "the relay's own events come with the two that fit")
	assert.EqualValues(t, 1, refused)
	table := s.run(t, cli.ExitOK, "sinks", "history", "kafka")
	assert.Contains(t, table, "ATTEMPTS FAILED")
	assert.Contains(t, table, "UTC")
	assert.Contains(t, s.run(t, cli.ExitFailure, "sinks", "history", "kafak"), `there is no sink "kafak"`)
}

// The relay is killed while it replays dead letters: each event is still a
// letter, or at the sink.
func TestKilledWhileDeadLettersAreReplayed(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	const events = 600
	s := newStand(t, 100) // no record fits
	relay := s.start(t)
	bodies := map[string]string{}
	for i := range events {
		bodies[fmt.Sprintf("event-%03d", i)] = incompressible(500)
	}
	s.push(t, bodies)
	s.eventually(t, events)
	s.limitMessages(t, 1<<20)
	for round := range 3 {
		ctx, cancel := context.WithTimeout(t.Context(), waiting.Stall)
		command := exec.CommandContext(ctx, "auditrelay", "deadletters", "replay", "--config", s.config)
		require.NoError(t, command.Start())
		time.Sleep(time.Duration(30+rng.IntN(250)) * time.Millisecond) // the moment is random
		require.NoError(t, relay.Process.Kill())
		_ = relay.Wait()   // it was killed
		_ = command.Wait() // it may have been as quick
		cancel()
		relay = s.start(t)
		s.ready(t)
		arrived, left := s.arrived(t), s.letters(t)
		for _, l := range left {
			arrived[l.ID]++
		}
		assert.Len(t, arrived, events, "round %d: an event is neither a letter nor at the sink", round)
		t.Logf("round %d: %d letters are left", round, len(left))
	}
	s.run(t, cli.ExitOK, "deadletters", "replay")
	assert.Len(t, s.arrived(t), events)
	assert.Empty(t, s.letters(t))
	s.end(t, relay)
}

// A span is delivered again, with the same ids, while events stream in.
func TestReplayBesideLiveDelivery(t *testing.T) {
	s := newScene(t, 400)
	relay := s.start(t)
	s.waitAcknowledged(t, 800)
	ledgers := s.sim.Ledgers() // acknowledged, so committed, before until
	until := time.Now().UTC().Format(time.RFC3339Nano)
	command := func(args ...string) string {
		args = append([]string{"replay", "--config", s.config, "--sink", "kafka", "--since", "1h", "--until", until}, args...)
		out, err := exec.CommandContext(t.Context(), "auditrelay", args...).CombinedOutput()
		require.NoError(t, err, "%s", out)
		return string(out)
	}
	assert.Contains(t, command("--dry-run"), "events would be delivered")
	before := s.sim.Counts().Acknowledged
	out := command("--match", `type.startsWith("event_log.")`)
	t.Logf("%d events came in meanwhile; %s", s.sim.Counts().Acknowledged-before, out)
	assert.Contains(t, out, " 0 refused")

	s.sim.Pause()
	s.settle(t)
	for _, d := range s.destinations {
		s.read(t, d, func(events []received) bool {
			var once, twice workspacesim.Tally
			seen := map[string]bool{}
			for _, e := range events {
				if once.Add(e.id); seen[e.id] {
					twice.Add(e.id)
				}
				seen[e.id] = true
			}
			return once.Missing(s.sim.Ledgers()) == 0 && (d.Name() != "kafka" || twice.Missing(ledgers) == 0)
		})
	}
	require.NoError(t, relay.Process.Signal(syscall.SIGTERM))
	require.NoError(t, relay.Wait())
}

// A sink removed from the configuration holds the journal until it is retired.
func TestASinkIsRetired(t *testing.T) {
	t.Parallel()
	s := newStand(t, 20_000)
	relay := s.start(t)
	s.push(t, map[string]string{"a": "a"})
	s.ready(t)
	assert.Contains(t, s.run(t, cli.ExitFailure, "sinks", "retire", "kafka", "--yes"), "remove it from the config first")
	s.end(t, relay)
	text, err := os.ReadFile(s.config)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(s.config, bytes.ReplaceAll(text, []byte("name: kafka"), []byte("name: other")), 0o600))
	relay = s.start(t)
	s.ready(t)
	assert.Regexp(t, `kafka +no `, s.run(t, cli.ExitOK, "sinks", "list"))
	assert.Contains(t, s.run(t, cli.ExitFailure, "sinks", "retire", "kafka"), "give --yes")
	assert.Contains(t, s.run(t, cli.ExitOK, "sinks", "retire", "kafka", "--yes"), "sink kafka is retired")
	assert.NotContains(t, s.run(t, cli.ExitOK, "sinks", "list"), "kafka")
	var event string
	waiting.Until(t, func() bool { // the trail's entry is an event too
		err := s.kafka.Read(t.Context(), func(id string, body []byte) {
			if bytes.Contains(body, []byte("sink.retired")) && bytes.Contains(body, []byte(`"person":{`)) {
				event = id
			}
		})
		return err == nil && event != ""
	})
	s.readTrail(t, event)
	s.end(t, relay)
	assert.Contains(t, s.run(t, cli.ExitOK, "trail", "list", "--offline"), "ada (claimed) reviewed entry")
}

// readTrail reads and annotates the trail of a relay after a sink was retired, and
// delivers its entry once more.
func (s *stand) readTrail(t *testing.T, event string) {
	t.Helper()
	var row timeline.Row
	out := s.run(t, cli.ExitOK, "trail", "list", "--type", "sink.*", "--unreviewed", "--output", "json")
	require.NoError(t, json.Unmarshal([]byte(out), &row), out)
	index := fmt.Sprint(row.Index)
	assert.Contains(t, s.run(t, cli.ExitOK, "trail", "show", index), "the sink was retired")
	assert.Contains(t, s.run(t, cli.ExitOK, "trail", "annotate", index, "--reviewer", "ada", "--ticket", "SEC-7"), "marked as reviewed")
	assert.Equal(t, "no entries\n", s.run(t, cli.ExitOK, "trail", "list", "--type", "sink.*", "--unreviewed"))
	assert.Contains(t, s.run(t, cli.ExitOK, "trail", "show", index), "ticket SEC-7")
	assert.Contains(t, s.run(t, cli.ExitFailure, "trail", "show", "99"), "there is no entry 99")
	assert.Contains(t, s.run(t, cli.ExitOK, "trail", "export", "--type", "trail.annotated"), `"user":`)
	assert.Contains(t, s.run(t, cli.ExitFailure, "settings", "show", "project"), "the trail has no state of project")

	assert.Contains(t, s.run(t, cli.ExitOK, "trail", "forward", "--sink", "other", "--since", "1h", "--type", "sink.*"), "1 entries: 1 delivered, 0 refused")
	times := 0
	require.NoError(t, s.kafka.Read(t.Context(), func(id string, _ []byte) {
		if id == event {
			times++
		}
	}))
	assert.Equal(t, 2, times, "under the id of the first time")
}

// stand is a relay process for pushes without a credential, and a topic with a limited
// message size.
type stand struct {
	config, ingest, admin string
	kafka                 *kafkatest.Topic
	client                *kadm.Client
	output                bytes.Buffer
}

func newStand(t *testing.T, maxMessage int) *stand {
	t.Helper()
	dir := t.TempDir()
	kafka, err := kafkatest.StartStandIn(nil)
	require.NoError(t, err)
	t.Cleanup(kafka.Close)
	client, err := kgo.NewClient(kgo.SeedBrokers(kafka.Brokers...))
	require.NoError(t, err)
	t.Cleanup(client.Close)
	s := &stand{
		config: filepath.Join(dir, "relay.yaml"), ingest: freeAddress(t), admin: freeAddress(t),
		kafka: kafka.On("events"), client: kadm.NewClient(client),
	}
	_, err = s.client.CreateTopic(t.Context(), 1, 1, nil, "events")
	require.NoError(t, err)
	s.limitMessages(t, maxMessage)
	text := fmt.Sprintf(`data_dir: %s
ingest: {listen: "%s", anonymous: acme/live}
admin: {listen: "%s"}
environments: [{project: acme, environment: live}]
sinks:
  - {name: kafka, batch_events: 50, match: {types: [event_log.*, sink.*]}, kafka: {brokers: ["%s"], topic: events}}
`, filepath.Join(dir, "data"), s.ingest, s.admin, kafka.Brokers[0])
	require.NoError(t, os.WriteFile(s.config, []byte(text), 0o600))
	return s
}

// limitMessages sets how large a batch the topic takes.
func (s *stand) limitMessages(t *testing.T, n int) {
	t.Helper()
	value := fmt.Sprint(n)
	answers, err := s.client.AlterTopicConfigs(t.Context(), []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "max.message.bytes", Value: &value}}, "events")
	require.NoError(t, err)
	for _, a := range answers {
		require.NoError(t, a.Err)
	}
}

func (s *stand) start(t *testing.T) *exec.Cmd {
	t.Helper()
	s.output.Reset()
	cmd := exec.Command("auditrelay", "run", "--config", s.config)
	cmd.Stdout, cmd.Stderr = &s.output, &s.output
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	return cmd
}

func (s *stand) end(t *testing.T, relay *exec.Cmd) {
	t.Helper()
	require.NoError(t, relay.Process.Signal(syscall.SIGTERM))
	require.NoError(t, relay.Wait(), "%s", s.output.String())
}

func (s *stand) ready(t *testing.T) {
	t.Helper()
	asks := []string{"healthcheck", "--url", "http://" + s.admin + "/readyz"}
	waiting.Until(t, func() bool { return cli.Program{}.Execute(t.Context(), asks, io.Discard, io.Discard) == cli.ExitOK }, "it does not start")
}

// push sends events by their ids, each with a note.
func (s *stand) push(t *testing.T, notes map[string]string) {
	t.Helper()
	s.ready(t)
	type streams struct {
		Stream map[string]string `json:"stream"`
		Values [][2]string       `json:"values"`
	}
	body := streams{Stream: map[string]string{"app": "idp"}}
	for id, note := range notes {
		line, err := json.Marshal(map[string]string{"event_id": id, "action": "LOGIN", "note": note})
		require.NoError(t, err)
		body.Values = append(body.Values, [2]string{fmt.Sprint(time.Now().UnixNano()), string(line)})
	}
	text, err := json.Marshal(map[string]any{"streams": []streams{body}})
	require.NoError(t, err)
	resp, err := http.Post("http://"+s.ingest+"/loki/api/v1/push", "application/json", bytes.NewReader(text))
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, http.StatusNoContent, resp.StatusCode)
}

// run runs a command against the relay, and returns its output.
func (s *stand) run(t *testing.T, code int, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), waiting.Stall)
	defer cancel()
	out, err := exec.CommandContext(ctx, "auditrelay", append(args, "--config", s.config)...).CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		require.NoError(t, err)
		require.Equal(t, code, cli.ExitOK, "%s", out)
		return string(out)
	}
	require.Equal(t, code, exit.ExitCode(), "%s", out)
	return string(out)
}

func (s *stand) letters(t *testing.T) (list []console.Letter) {
	t.Helper()
	out := s.run(t, cli.ExitOK, "deadletters", "list", "--json")
	for line := range strings.Lines(out) {
		var l console.Letter
		require.NoError(t, json.Unmarshal([]byte(line), &l), line)
		if !ofTrail(l.ID) {
			list = append(list, l)
		}
	}
	return list
}

// ofTrail reports whether an id is an entry's of the audit trail, such as one about the
// relay's start: those come and go among the pushed events.
func ofTrail(id string) bool { return strings.Contains(id, "@") }

// eventually waits until there are n dead letters.
func (s *stand) eventually(t *testing.T, n int) {
	t.Helper()
	waiting.Until(t, func() bool { return len(s.letters(t)) == n }, "there are not %d dead letters", n)
}

// arrived counts the events at Kafka by their ids.
func (s *stand) arrived(t *testing.T) map[string]int {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), waiting.Stall)
	defer cancel()
	got := map[string]int{}
	require.NoError(t, s.kafka.Read(ctx, func(id string, _ []byte) {
		if !ofTrail(id) {
			got[id]++
		}
	}))
	return got
}

// incompressible is random text of n bytes.
func incompressible(n int) string {
	const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	b := make([]byte, n)
	for i := range b {
		b[i] = letters[rand.IntN(len(letters))]
	}
	return string(b)
}
