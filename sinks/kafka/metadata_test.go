package kafka

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/relay"
	"github.com/auditrelay/auditrelay/relay/relaytest"
)

func TestUnknownTopicThenCreated(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	s := c.sink(t, func(cfg *config.Kafka) { cfg.Topic = "later" })
	events := relaytest.Events(5)
	err := s.Deliver(t.Context(), events)
	require.ErrorIs(t, err, kafkaError(3))
	require.ErrorContains(t, err, "create the topic, or set create_topic")
	assert.False(t, relay.IsPermanent(err))
	require.NoError(t, c.CreateTopic("later", 2, nil))
	require.NoError(t, s.Deliver(t.Context(), events))
	assert.Len(t, c.records(t, "later"), 5)
}

func TestCreateTopic(t *testing.T) {
	t.Parallel()
	c := newCluster(t, kfake.NumBrokers(3), kfake.DefaultNumPartitions(4))
	s := c.sink(t, func(cfg *config.Kafka) {
		cfg.Topic, cfg.CreateTopic, cfg.Partitions = "made.{environment}", true, 5
	})
	events := relaytest.Events(10, relaytest.Environments("acme/a", "acme/b"))
	require.NoError(t, s.Deliver(t.Context(), events))
	assert.Len(t, c.PartitionInfos("made.a"), 5)
	assert.Len(t, c.records(t, "made.b"), 5)

	s = c.sink(t, func(cfg *config.Kafka) { cfg.Topic, cfg.CreateTopic = "brokers.choice", true })
	require.NoError(t, s.Deliver(t.Context(), events))
	assert.Len(t, c.PartitionInfos("brokers.choice"), 4)

	s = c.sink(t, func(cfg *config.Kafka) { cfg.Topic, cfg.CreateTopic = "denied", true })
	c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.CreateTopics}, Err: kerr.TopicAuthorizationFailed})
	err := s.Deliver(t.Context(), events)
	require.ErrorContains(t, err, "create topic denied")
	require.ErrorContains(t, err, "grant the sink's principal")
	assert.False(t, relay.IsPermanent(err))
	require.NoError(t, s.Deliver(t.Context(), events))
}

func TestMetadataIsOfNeededTopicsAndAges(t *testing.T) {
	t.Parallel()
	c := newCluster(t, kfake.SeedTopics(1, testTopic, "other"))
	s := c.sink(t, nil)
	var asked atomic.Int32
	c.ControlKey(int16(kmsg.Metadata), func(r kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		asked.Add(1)
		topics := r.(*kmsg.MetadataRequest).Topics
		if assert.Len(t, topics, 1) {
			assert.Equal(t, testTopic, *topics[0].Topic)
		}
		return nil, nil, false
	})
	for range 5 {
		require.NoError(t, s.Deliver(t.Context(), relaytest.Events(3)))
	}
	assert.EqualValues(t, 1, asked.Load())
	s.maxAge = 0
	require.NoError(t, s.Deliver(t.Context(), relaytest.Events(3)))
	assert.EqualValues(t, 2, asked.Load())
}

func TestUnusedTopicsAreForgotten(t *testing.T) {
	t.Parallel()
	c := newCluster(t, kfake.AllowAutoTopicCreation())
	s := c.sink(t, func(cfg *config.Kafka) { cfg.Topic = "{environment}" })
	s.maxAge = 0
	for i := range 5 {
		_ = s.Deliver(t.Context(), relaytest.Events(1, relaytest.Environments(fmt.Sprintf("acme/e%d", i))))
	}
	assert.LessOrEqual(t, len(s.topics), 1)
}

// One of several bootstrap brokers is gone, and the other is the leader.
func TestBootstrapBrokerDown(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	s := c.sink(t, func(cfg *config.Kafka) { cfg.Brokers = append([]string{"127.0.0.1:1"}, cfg.Brokers...) })
	require.NoError(t, s.Deliver(t.Context(), relaytest.Events(3)))
}

func TestBrokerDownAtNew(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.gate.close()
	s := c.sink(t, nil)
	events := relaytest.Events(3)
	err := s.Deliver(t.Context(), events)
	require.ErrorContains(t, err, "fetch metadata from "+c.ListenAddrs()[0])
	assert.False(t, relay.IsPermanent(err))
	c.gate.open()
	require.NoError(t, s.Deliver(t.Context(), events))
}
