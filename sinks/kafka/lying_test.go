package kafka

import (
	"bytes"
	"encoding/binary"
	"math"
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/config/secret"
	"github.com/auditrelay/auditrelay/relay"
	"github.com/auditrelay/auditrelay/relay/relaytest"
)

// An acknowledgement of another partition, of another topic, or of several is none.
func TestAnAcknowledgementOfAnotherPartitionIsNone(t *testing.T) {
	t.Parallel()
	partition := func(id int32) kmsg.ProduceResponseTopicPartition {
		p := kmsg.NewProduceResponseTopicPartition()
		p.Partition = id
		return p
	}
	topic := func(name string, ids ...int32) kmsg.ProduceResponseTopic {
		topic := kmsg.NewProduceResponseTopic()
		topic.Topic = name
		for _, id := range ids {
			topic.Partitions = append(topic.Partitions, partition(id))
		}
		return topic
	}
	for name, topics := range map[string][]kmsg.ProduceResponseTopic{
		"another partition":     {topic(testTopic, 1)},
		"another topic":         {topic("others", 0)},
		"one and another":       {topic(testTopic, 0, 1)},
		"another and the right": {topic("others", 0), topic(testTopic, 0)},
		"no partition":          {topic(testTopic)},
		"no topic":              {},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t)
			s := c.sink(t, nil)
			c.ControlKey(int16(kmsg.Produce), func(req kmsg.Request) (kmsg.Response, error, bool) {
				res := req.ResponseKind().(*kmsg.ProduceResponse)
				res.Topics = topics
				return res, nil, true
			})
			err := s.Deliver(t.Context(), relaytest.Events(3))
			require.ErrorContains(t, err, "produce to topic events, partition 0")
			assert.False(t, relay.IsPermanent(err))
			require.NoError(t, s.Deliver(t.Context(), relaytest.Events(3)))
			assert.Len(t, c.records(t, testTopic), 3)
		})
	}
}

// Whatever a peer answers, the relay goes on: an answer is refused before kafka-go makes room for a
// list of two thousand million elements in 40 bytes, and no event is lost by it.
func TestABrokerThatLiesAboutLengths(t *testing.T) {
	t.Parallel()
	for answer := range 3 { // to the questions for versions and metadata, and to the events
		for _, value := range []uint32{math.MaxInt32, 1 << 24} {
			for nth, more := 0, true; more; nth++ {
				lieOnce(t, answer, func(b []byte) []byte {
					at := smallNumber(b, nth)
					if more = at > 0; more {
						binary.BigEndian.PutUint32(b[at:], value)
					}
					return b
				})
			}
		}
	}
}

// smallNumber is where the nth number of four bytes stands in an answer that may be the length of a
// list; 0 if there are fewer.
func smallNumber(b []byte, nth int) int {
	for at := 8; at+4 <= len(b); at++ {
		if n := binary.BigEndian.Uint32(b[at:]); n == 0 || n > 100 {
			continue
		}
		if nth--; nth < 0 {
			return at
		}
	}
	return 0
}

// Half an answer, and an answer to another request, are none.
func TestHalfAnAnswerIsNone(t *testing.T) {
	t.Parallel()
	for answer := range 3 { // to the questions for versions and metadata, and to the events
		for left := 4; left < 40; left += 3 {
			lieOnce(t, answer, func(b []byte) []byte {
				b = b[:min(len(b), left)]
				binary.BigEndian.PutUint32(b, uint32(len(b)-4)) //nolint:gosec // a small one
				return b
			})
		}
		lieOnce(t, answer, func(b []byte) []byte { // to an earlier request
			b[7]--
			return b
		})
	}
}

// A broker that asks for two thousand million iterations is refused at once: they would take an hour,
// and end with no context.
func TestABrokerThatAsksForTooManyIterations(t *testing.T) {
	t.Parallel()
	for name, count := range map[string]string{"an hour": "2000000000", "for ever": "9999999999999999999999"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t, kfake.EnableSASL(), kfake.Superuser("SCRAM-SHA-256", "relay", "right-horse-7"))
			twist := func(b []byte) []byte {
				at, end := bytes.Index(b, []byte("r=")), bytes.Index(b, []byte(",i="))
				if at < 0 || end < at {
					return b
				}
				challenge := append(bytes.Clone(b[at:end]), ",i="+count...)
				length := len(bytes.TrimRight(b[end+len(",i="):], "\x00")) // of the count that was there
				rest := b[end+len(",i=")+length:]
				b = append(binary.BigEndian.AppendUint32(b[:at-4:at-4], uint32(len(challenge))), append(challenge, rest...)...) //nolint:gosec // a small one
				binary.BigEndian.PutUint32(b, uint32(len(b)-4))                                                                 //nolint:gosec // a small one
				return b
			}
			c.gate.twist.Store(&twist)
			s := c.sink(t, func(cfg *config.Kafka) {
				cfg.SASL = &config.KafkaSASL{Mechanism: "scram-sha-256", Username: "relay", Password: secret.New("right-horse-7")}
			})
			require.ErrorContains(t, s.Deliver(t.Context(), relaytest.Events(1)), "iterations, and the sink does at most 1000000")
			c.gate.twist.Store(nil)
			require.NoError(t, s.Deliver(t.Context(), relaytest.Events(1)))
		})
	}
}

// lieOnce delivers to a cluster with one answer that is twisted, counted from 0 and the opening of
// the first connection, until it succeeds.
func lieOnce(t *testing.T, answer int, twist func(b []byte) []byte) {
	t.Helper()
	c := newCluster(t, kfake.SeedTopics(1, testTopic))
	defer c.Close()
	var n atomic.Int32
	lie := func(b []byte) []byte {
		if n.Add(1) == int32(answer)+1 { //nolint:gosec // a small one
			return twist(b)
		}
		return b
	}
	c.gate.twist.Store(&lie)
	s := c.sink(t, nil)
	events := relaytest.Events(3)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for tries := 0; ; tries++ {
		err := s.Deliver(t.Context(), events)
		if err == nil {
			break
		}
		require.False(t, relay.IsPermanent(err), "%v", err)
		require.Less(t, tries, 3, "%v", err)
	}
	c.gate.twist.Store(nil)
	runtime.ReadMemStats(&after)
	require.Greater(t, n.Load(), int32(answer)) //nolint:gosec // a small one
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(1<<30))
	have := map[string]bool{}
	for _, id := range ids(t, c.records(t, testTopic)) {
		have[id] = true
	}
	for _, id := range idsOf(events) {
		require.True(t, have[id])
	}
}
