package kafka

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"strconv"
	"testing"

	"github.com/segmentio/kafka-go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/config/secret"
	"github.com/auditrelay/auditrelay/relay"
)

// checked returns the findings, one per line.
func checked(t *testing.T, s relay.Checker) (string, error) {
	t.Helper()
	text := ""
	err := s.Check(t.Context(), func(what, found string) { text += what + ": " + found + "\n" })
	return text, err
}

func TestCheckFindsTheClusterAndWritesNothing(t *testing.T) {
	t.Parallel()
	const password = "check-horse-3"
	ca := newAuthority(t)
	c := newCluster(t, kfake.NumBrokers(3), kfake.ClusterID("audit-test"),
		kfake.EnableSASL(), kfake.Superuser("SCRAM-SHA-512", "relay", password),
		kfake.BrokerConfigs(map[string]string{"message.max.bytes": "500000", "min.insync.replicas": "1"}),
		kfake.TLS(&tls.Config{Certificates: []tls.Certificate{ca.issue(t, "broker")}, MinVersion: tls.VersionTLS12}))
	require.NoError(t, c.CreateTopic("limited", 4, map[string]string{"max.message.bytes": "400000"}))
	writes := c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce, kmsg.CreateTopics, kmsg.InitProducerID}, Observe: true, Count: -1})
	_, port, err := net.SplitHostPort(c.ListenAddrs()[0])
	require.NoError(t, err)
	s, err := New(complete(t, config.Kafka{
		Brokers: []string{"localhost:" + port}, Topic: "limited", TLS: &config.TLSClient{CAFile: ca.file},
		SASL: &config.KafkaSASL{Mechanism: "scram-sha-512", Username: "relay", Password: secret.New(password)},
	}), Options{BatchBytes: 4 << 20})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })

	found, err := checked(t, s)
	require.NoError(t, err)
	for _, want := range []string{
		"name localhost: resolves to ",
		"broker localhost:" + port + ": answers, over TLS, authenticated by SCRAM-SHA-512\n",
		"cluster: 3 brokers, id \"audit-test\"\n",
		"broker 2 at " + c.ListenAddrs()[2] + ": answers\n",
		"topic limited: 4 partitions, 3 replicas each\n",
		"limits of broker 0: message.max.bytes 500000\n",
		"limits of topic limited: max.message.bytes 400000\n",
		"limits of topic limited: min.insync.replicas 1\n",
		"batch_bytes: 4194304 before compression, and a request takes 400000",
	} {
		assert.Contains(t, found, want)
	}
	assert.NotContains(t, found, password)
	assert.Zero(t, writes.Hits())
}

func TestCheckNamesWhatFails(t *testing.T) {
	t.Parallel()
	const right, wrong = "right-horse-1", "wrong-horse-2"
	c := newCluster(t, kfake.EnableSASL(), kfake.Superuser("PLAIN", "relay", right))
	for name, one := range map[string]struct {
		change func(*config.Kafka)
		want   string // of the error; "" for none
		found  string
	}{
		"wrong password": {func(cfg *config.Kafka) { cfg.SASL.Password = secret.New(wrong) }, "check sasl.username and sasl.password", "check sasl"},
		"wrong port":     {func(cfg *config.Kafka) { cfg.Brokers = []string{"127.0.0.1:1"} }, "none of 1 brokers answers, the first: broker 127.0.0.1:1", "refused"},
		"no such name":   {func(cfg *config.Kafka) { cfg.Brokers = []string{"nosuch.invalid:9092"} }, "nosuch.invalid", "broker nosuch.invalid:9092: "},
		"one of two brokers": {
			func(cfg *config.Kafka) { cfg.Brokers = append([]string{"127.0.0.1:1"}, cfg.Brokers...) }, "",
			"broker 127.0.0.1:1: connect to 127.0.0.1:1: ",
		},
		"missing topic": {func(cfg *config.Kafka) { cfg.Topic = "nowhere" }, "create the topic, or set create_topic", "topic nowhere: "},
		"topic to be made": {
			func(cfg *config.Kafka) { cfg.Topic, cfg.CreateTopic, cfg.Partitions = "later", true, 7 }, "",
			"topic later: does not exist, and would be created; partitions: 7, replicas: as the broker has it",
		},
		"too many replicas": {
			func(cfg *config.Kafka) { cfg.Topic, cfg.CreateTopic, cfg.ReplicationFactor = "later", true, 5 },
			"would not be created", "set replication_factor to no more than the number of brokers",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := c.sink(t, func(cfg *config.Kafka) {
				cfg.SASL = &config.KafkaSASL{Mechanism: "plain", Username: "relay", Password: secret.New(right)}
				one.change(cfg)
			})
			found, err := checked(t, s)
			assert.Contains(t, found, one.found)
			assert.NotContains(t, fmt.Sprint(found, err), wrong)
			assert.Empty(t, c.PartitionInfos("later"), "nothing may be created")
			if one.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, one.want)
		})
	}
}

// If the topic depends on the events, no topic is asked for, and certainly not all of them.
func TestCheckOfATopicTemplate(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.ControlKey(int16(kmsg.Metadata), func(r kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		topics := r.(*kmsg.MetadataRequest).Topics
		assert.True(t, topics != nil && len(topics) == 0, "%v", topics)
		return nil, nil, false
	})
	found, err := checked(t, c.sink(t, func(cfg *config.Kafka) { cfg.Topic = "log.{environment}" }))
	require.NoError(t, err)
	assert.Contains(t, found, "topic: its name depends on each event")
	assert.Contains(t, found, "limits of broker 0: message.max.bytes ")
}

// Each known topic of the events is examined.
func TestCheckOfKnownTopics(t *testing.T) {
	t.Parallel()
	c := newCluster(t, kfake.SeedTopics(3, "auth.live"))
	s := c.sink(t, func(cfg *config.Kafka) { cfg.Topic = "auth.{environment}" })
	s.checkTopics = []string{"auth.live", "auth._"}
	found, err := checked(t, s)
	require.ErrorContains(t, err, "topic auth._: ")
	require.ErrorContains(t, err, "create the topic, or set create_topic")
	assert.Contains(t, found, "topic auth.live: 3 partitions")
	assert.Contains(t, found, "limits of topic auth.live: max.message.bytes ")

	s = c.sink(t, func(cfg *config.Kafka) { cfg.Topic, cfg.CreateTopic = "auth.{environment}", true })
	s.checkTopics = []string{"auth.live", "auth._"}
	found, err = checked(t, s)
	require.NoError(t, err)
	assert.Contains(t, found, "topic auth._: does not exist, and would be created")
	assert.Empty(t, c.PartitionInfos("auth._"), "nothing may be created")
}

// A principal that may not see the limits can still deliver.
func TestCheckWithoutPermissions(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.DescribeConfigs}, Err: kerr.TopicAuthorizationFailed, Count: -1})
	found, err := checked(t, c.sink(t, nil))
	require.NoError(t, err)
	assert.Contains(t, found, "limits of topic events: the broker does not tell them")

	c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Metadata}, Topic: testTopic, Err: kerr.TopicAuthorizationFailed, Count: -1})
	_, err = checked(t, c.sink(t, nil))
	require.ErrorIs(t, err, kafka.TopicAuthorizationFailed)
	require.ErrorContains(t, err, "grant the sink's principal Describe and Write")
}

// The cluster advertises addresses that cannot be reached from here, has too few replicas in
// sync, and has a partition without a leader.
func TestCheckOfASickCluster(t *testing.T) {
	t.Parallel()
	c := newCluster(t, kfake.BrokerConfigs(map[string]string{"min.insync.replicas": "2"}))
	c.ControlKey(int16(kmsg.Metadata), func(r kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		return sick(t, r, c.ListenAddrs()[0]), nil, true
	})
	found, err := checked(t, c.sink(t, nil))
	require.ErrorContains(t, err, "broker 1 at 127.0.0.1:1: the cluster names it, and it does not answer here")
	require.ErrorContains(t, err, "check its advertised.listeners")
	assert.Contains(t, found, "topic events: 2 partitions, 2 replicas each")
	assert.Contains(t, found, "topic events: partitions [1]: [5] Leader Not Available")
	assert.Contains(t, found, "limits of topic events: partition 0 has 1 replicas in sync")
}

// sick describes brokers 0, at address, and 1, nowhere.
func sick(t *testing.T, r kmsg.Request, address string) kmsg.Response {
	t.Helper()
	host, port, err := net.SplitHostPort(address)
	require.NoError(t, err)
	number, err := strconv.ParseInt(port, 10, 32)
	require.NoError(t, err)
	res := r.ResponseKind().(*kmsg.MetadataResponse)
	for id, at := range []int32{int32(number), 1} {
		b := kmsg.NewMetadataResponseBroker()
		b.NodeID, b.Host, b.Port = int32(id), host, at
		res.Brokers = append(res.Brokers, b)
	}
	topic := kmsg.NewMetadataResponseTopic()
	topic.Topic = kmsg.StringPtr(testTopic)
	for id, leader := range []int32{0, -1} {
		p := kmsg.NewMetadataResponseTopicPartition()
		p.Partition, p.Leader, p.Replicas, p.ISR = int32(id), leader, []int32{0, 1}, []int32{0}
		topic.Partitions = append(topic.Partitions, p)
	}
	res.Topics = append(res.Topics, topic)
	return res
}

func TestCheckEndsWithItsContext(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	ctx, cancel := context.WithCancel(t.Context())
	c.ControlKey(int16(kmsg.Metadata), func(kmsg.Request) (kmsg.Response, error, bool) {
		cancel()
		return nil, nil, true // never answered
	})
	err := c.sink(t, nil).Check(ctx, func(string, string) {})
	require.ErrorIs(t, err, context.Canceled)
}
