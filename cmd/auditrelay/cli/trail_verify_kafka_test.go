package cli

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/testbed/kafkatest"
	"github.com/auditrelay/auditrelay/internal/testbed/trailtest"
	"github.com/auditrelay/auditrelay/internal/trail/audit"
	"github.com/auditrelay/auditrelay/internal/trail/proof"
	"github.com/auditrelay/auditrelay/relay"
	"github.com/auditrelay/auditrelay/sinks/kafka"
)

// auditEvents are the events of a trail's entries and of its checkpoint.
func auditEvents(t *testing.T, n int) (events []relay.Event, key string) {
	t.Helper()
	kept := trailtest.Store(t, t.TempDir())
	defer func() { require.NoError(t, kept.Close()) }()
	o := audit.Options{KeySource: audit.KeySource{Origin: "example.com/trail", KeyFile: filepath.Join(t.TempDir(), "audit.key")}, SignEvery: time.Hour}
	trail, err := audit.Open(t.Context(), kept, o)
	require.NoError(t, err)
	for i := range n {
		_, err := trail.Append(t.Context(), scaleEntry(i))
		require.NoError(t, err)
	}
	require.NoError(t, trail.Close(t.Context()))
	trail, err = audit.Open(t.Context(), kept, o) // Close has signed
	require.NoError(t, err)
	defer func() { require.NoError(t, trail.Close(t.Context())) }()
	add := func(e relay.Event, id string, body []byte) {
		e.ID, e.Source, e.Received, e.ContentType, e.Body = trail.NameOf(0)+"@"+id, relay.TrailSource, e.Time, "application/json", body
		events = append(events, e)
	}
	for i := range n {
		e, err := trail.Get(t.Context(), int64(i))
		require.NoError(t, err)
		place, err := trail.Place(t.Context(), e)
		require.NoError(t, err)
		body, err := audit.EventBody(e, place, 1<<30)
		require.NoError(t, err)
		add(relay.Event{Type: e.Type, Subject: e.Subject, Project: e.Project, Environment: e.Environment, Time: e.Time}, fmt.Sprint(i), body)
	}
	dir := filepath.Join(t.TempDir(), "export")
	made := writeFiles(t, trail, dir)
	note, err := os.ReadFile(filepath.Join(dir, "0", proof.CheckpointFile))
	require.NoError(t, err)
	trusted, _, err := (&trustFlags{key: made.PublicKey, policy: ""}).read()
	require.NoError(t, err)
	_, by, err := trusted.Open(note)
	require.NoError(t, err)
	body, err := json.Marshal(map[string]any{
		"type": audit.TypeCheckpoint, "checkpoint": string(note), "origin": made.Origin, "base": 0, "size": made.Size, "root": made.Root, "time": by.Time,
	})
	require.NoError(t, err)
	add(relay.Event{Type: audit.TypeCheckpoint, Subject: audit.CheckpointSubject, Project: audit.OwnProject, Time: by.Time}, fmt.Sprintf("checkpoint-%d-1", made.Size), body)
	return events, made.PublicKey
}

// A topic filled by the relay's own sink, in any order over partitions and some of it twice,
// gives the signed root; one missing entry is named.
func TestATopicIsASinksCopy(t *testing.T) {
	t.Setenv(configVariable, "")
	broker, err := kafkatest.StartStandIn(nil)
	require.NoError(t, err)
	defer broker.Close()
	const n = 40
	events, key := auditEvents(t, n)
	fill := func(topic, mode string, events []relay.Event) {
		require.NoError(t, broker.On(topic).Create(t.Context(), 3))
		deliver(t, config.Kafka{Brokers: broker.Brokers, Topic: topic, Mode: mode, Key: "none"}, events)
	}
	verify := func(code int, topic string, more ...string) string {
		source := strings.Join(broker.Brokers, ",") + "/" + topic
		return trailCommand(t, code, append([]string{"verify", "--from-kafka", source, "--key", key}, more...)...)
	}
	mixed := append(events[:len(events):len(events)], events[5:20]...)
	for i := range 50 { // of the event stream: text, and no JSON
		mixed = append(mixed, relay.Event{ID: fmt.Sprint(i), Source: "/acme", Type: "event_log.login", ContentType: "text/plain", Body: []byte(`a "trail" {`)})
	}
	r := rand.New(rand.NewPCG(1, 2))
	r.Shuffle(len(mixed), func(i, j int) { mixed[i], mixed[j] = mixed[j], mixed[i] })
	fill("binary", "binary", mixed)
	text := verify(ExitOK, "binary")
	assert.Contains(t, text, "log example.com/trail: entries 0 to 39")
	assert.Contains(t, text, "completeness: holds")

	for _, mode := range []string{"structured", "batch"} {
		fill(mode, mode, mixed)
		text := verify(ExitOK, mode)
		assert.Contains(t, text, "log example.com/trail: entries 0 to 39", mode)
		assert.Contains(t, text, "completeness: holds", mode)
	}

	for _, mode := range []string{"binary", "batch"} {
		fill("incomplete-"+mode, mode, append(events[:17:17], events[18:]...))
		assert.Contains(t, verify(ExitNotShown, "incomplete-"+mode), "missing: entry 17: no event of it is here")
	}

	assert.Contains(t, verify(ExitFailure, "nowhere"), "read the kafka topic nowhere: ")
	assert.Contains(t, verify(ExitFailure, "nowhere"), "Unknown Topic", "the first look has made the topic")
	assert.Contains(t, verify(ExitUsage, ""), "--from-kafka is BROKER[,BROKER]/TOPIC")
	t.Setenv(kafkaPasswordVariable, "")
	assert.Contains(t, verify(ExitUsage, "binary", "--kafka-user", "auditor"), kafkaPasswordVariable)
	assert.Contains(t, verify(ExitUsage, "binary", "--kafka-ca", "ca.pem"), "--kafka-ca needs --kafka-tls")
	assert.Contains(t, trailCommand(t, ExitUsage, "verify", "--dir", "x", "--kafka-tls"), "--kafka-tls needs --from-kafka")
}

// deliver sends the events with the relay's own sink, a few at a time.
func deliver(t *testing.T, cfg config.Kafka, events []relay.Event) {
	t.Helper()
	require.NoError(t, (&config.Sink{Name: "test", Kafka: &cfg}).Complete())
	sink, err := kafka.New(cfg, kafka.Options{})
	require.NoError(t, err)
	defer func() { require.NoError(t, sink.Close()) }()
	for len(events) > 0 {
		some := min(7, len(events))
		require.NoError(t, sink.Deliver(t.Context(), events[:some]))
		events = events[some:]
	}
}
