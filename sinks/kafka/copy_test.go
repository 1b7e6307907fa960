package kafka

import (
	"crypto/tls"
	"fmt"
	"testing"

	"github.com/segmentio/kafka-go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/config/secret"
	"github.com/auditrelay/auditrelay/relay"
	"github.com/auditrelay/auditrelay/relay/relaytest"
)

// open opens a copy of the test's topic that reads it in many small answers.
func (c *cluster) open(t *testing.T) *Copy {
	t.Helper()
	made, err := OpenCopy(t.Context(), complete(t, c.config()))
	require.NoError(t, err)
	made.fetch = 1 // one batch
	return made
}

// Each record is read once, up to where the topic ended when it was opened, even if connections
// are lost.
func TestACopyIsReadToItsEndAtTheOpening(t *testing.T) {
	t.Parallel()
	c := newCluster(t, kfake.SeedTopics(3, "three"))
	s := c.sink(t, func(cfg *config.Kafka) { cfg.Topic, cfg.Key = "three", "none" })
	var bodies []string
	deliver := func(from, to int) {
		for i := from; i < to; i++ {
			e := relay.Event{ID: fmt.Sprint(i), Source: "/acme", Type: "settings.checked", ContentType: "application/json", Body: fmt.Appendf(nil, `{"n":%d}`, i)}
			require.NoError(t, s.Deliver(t.Context(), []relay.Event{e}))
			bodies = append(bodies, string(e.Body))
		}
	}
	deliver(0, 30)
	cfg := complete(t, c.config())
	cfg.Topic = "three"
	topic, err := OpenCopy(t.Context(), cfg)
	require.NoError(t, err)
	topic.fetch = 1
	assert.EqualValues(t, 30, topic.Size())
	deliver(30, 33)
	var read []string
	var last int64
	for r, err := range topic.Records(t.Context(), func(n int64) { last = n }) {
		require.NoError(t, err)
		assert.Equal(t, "settings.checked", r.Event.Type)
		assert.Equal(t, "/acme", r.Event.Source)
		read = append(read, string(r.Body))
		if len(read)%10 == 3 {
			c.gate.close()
			c.gate.open()
		}
	}
	assert.ElementsMatch(t, bodies[:30], read)
	assert.EqualValues(t, 30, last)
}

// A topic may end with a transaction's mark, and contain records of others, and those of a
// transaction that was aborted. None of them is an event that was delivered.
func TestACopyPassesOverWhatIsNoEvent(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	client, err := kgo.NewClient(kgo.SeedBrokers(c.ListenAddrs()...), kgo.TransactionalID("t"), kgo.DefaultProduceTopic(testTopic))
	require.NoError(t, err)
	defer client.Close()
	require.NoError(t, client.BeginTransaction())
	event := []kgo.RecordHeader{{Key: "ce_type", Value: []byte("trail.checkpoint")}}
	for _, r := range []*kgo.Record{{Value: []byte("foreign")}, {Headers: event}, {Headers: event, Value: []byte("body")}} {
		require.NoError(t, client.ProduceSync(t.Context(), r).FirstErr())
	}
	require.NoError(t, client.EndTransaction(t.Context(), kgo.TryCommit))
	require.NoError(t, client.BeginTransaction())
	require.NoError(t, client.ProduceSync(t.Context(), &kgo.Record{Headers: event, Value: []byte("never delivered")}).FirstErr())
	require.NoError(t, client.EndTransaction(t.Context(), kgo.TryAbort))
	var read []Record
	for r, err := range c.open(t).Records(t.Context(), func(int64) {}) {
		require.NoError(t, err)
		read = append(read, r)
	}
	assert.Equal(t, []Record{{Event: &relay.Event{Type: "trail.checkpoint", Body: []byte("body")}, Body: []byte("body")}}, read)
}

func TestACopyNeedsTheTopic(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	for topic, reason := range map[string]string{"{type}": "a topic's name has", "nowhere": "Unknown Topic"} {
		cfg := complete(t, c.config())
		cfg.Topic = topic
		_, err := OpenCopy(t.Context(), cfg)
		require.ErrorContains(t, err, reason)
	}
	assert.Empty(t, c.PartitionInfos("nowhere"), "reading has made the topic")
}

// A copy is read through TLS and SASL, as a sink writes it. No error contains the password.
func TestACopyIsReadBehindTLSAndSASL(t *testing.T) {
	t.Parallel()
	const right, wrong = "right-horse-7", "wrong-horse-8"
	ca := newAuthority(t)
	c := newCluster(t, kfake.EnableSASL(), kfake.Superuser("SCRAM-SHA-512", "auditor", right), kfake.TLS(&tls.Config{
		Certificates: []tls.Certificate{ca.issue(t, "broker")}, MinVersion: tls.VersionTLS12,
	}))
	cfg := complete(t, c.config())
	cfg.TLS = &config.TLSClient{CAFile: ca.file}
	cfg.SASL = &config.KafkaSASL{Mechanism: "scram-sha-512", Username: "auditor", Password: secret.New(right)}
	s, err := New(cfg, Options{})
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()
	require.NoError(t, s.Deliver(t.Context(), relaytest.Events(3)))
	topic, err := OpenCopy(t.Context(), cfg)
	require.NoError(t, err)
	read := 0
	for _, err := range topic.Records(t.Context(), func(int64) {}) {
		require.NoError(t, err)
		read++
	}
	assert.Equal(t, 3, read)

	cfg.SASL = &config.KafkaSASL{Mechanism: "scram-sha-512", Username: "auditor", Password: secret.New(wrong)}
	_, err = OpenCopy(t.Context(), cfg)
	require.ErrorIs(t, err, kafka.SASLAuthenticationFailed)
	assert.NotContains(t, fmt.Sprintf("%v %#v", err, err), wrong)
}
