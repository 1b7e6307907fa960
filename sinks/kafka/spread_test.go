package kafka

import (
	"testing"

	"github.com/segmentio/kafka-go"
	"github.com/stretchr/testify/assert"
)

func topicOf(n int) *topic {
	t := &topic{}
	for i := range n {
		t.partitions = append(t.partitions, &partition{id: i, leader: kafka.TCP("broker:9092")})
		t.ids = append(t.ids, i)
	}
	return t
}

// The hashes are those of org.apache.kafka.common.utils.UtilsTest.testMurmur2; a partition is
// (hash & 0x7fffffff) % n (BuiltInPartitioner.partitionForKey).
func TestMurmur2IsJavas(t *testing.T) {
	t.Parallel()
	balancer := balancerNamed("murmur2")
	s := spread{balancer: balancer}
	for key, hash := range map[string]int32{
		"21":                         -973932308,
		"foobar":                     -790332482,
		"a-little-bit-long-string":   -985981536,
		"a-little-bit-longer-string": -1486304829,
		"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
		"abc": 479470107,
	} {
		for _, n := range []int{1, 2, 7, 12, 100} {
			want := int(hash&0x7fffffff) % n
			assert.Equal(t, want, s.choose(topicOf(n), []byte(key)), "%s of %d", key, n)
		}
	}
	assert.Equal(t, 275646681&0x7fffffff%7, s.choose(topicOf(7), []byte{}), "an empty key is a key")
}

// CRC-32 (IEEE) of the key modulo the partitions, as rd_crc32 in librdkafka's
// rd_kafka_msg_partitioner_consistent; the check value of "123456789" is 0xcbf43926.
func TestCRC32IsLibrdkafkas(t *testing.T) {
	t.Parallel()
	balancer := balancerNamed("crc32")
	s := spread{balancer: balancer}
	for _, n := range []int{1, 3, 7, 100} {
		assert.Equal(t, 0xcbf43926%n, s.choose(topicOf(n), []byte("123456789")))
	}
}

func TestRoundRobin(t *testing.T) {
	t.Parallel()
	murmur2 := balancerNamed("murmur2")
	around := balancerNamed("round-robin")
	for name, c := range map[string]struct {
		spread spread
		key    []byte
	}{
		"no key":      {spread{balancer: murmur2}, nil},
		"round-robin": {spread{balancer: around}, []byte("key")},
	} {
		topic := topicOf(4)
		topic.partitions[2].leader = nil
		counts := map[int]int{}
		for range 30 {
			counts[c.spread.choose(topic, c.key)]++
		}
		assert.Equal(t, map[int]int{0: 10, 1: 10, 3: 10}, counts, name)
		for _, p := range topic.partitions {
			p.leader = nil
		}
		assert.NotPanics(t, func() { c.spread.choose(topic, c.key) }, "no leader at all")
	}
}
