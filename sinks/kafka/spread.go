package kafka

import "github.com/segmentio/kafka-go"

// spread chooses partitions. The hash of the key chooses the partition whether or not it has a
// leader, so that a key keeps its partition; records without a key go to the available
// partitions in turn.
type spread struct {
	balancer kafka.Balancer // nil if keys do not matter
	turn     int
}

// choose returns an index into t.partitions, which is never empty.
//
// With murmur2 and crc32 it makes the choice of the Java client and of librdkafka. These give a
// record without a key any partition; for librdkafka, an empty key is no key.
func (s *spread) choose(t *topic, key []byte) int {
	if s.balancer == nil || key == nil {
		return s.next(t)
	}
	return s.balancer.Balance(kafka.Message{Key: key}, t.ids...)
}

// next goes through the partitions that have a leader, or through all if none has one.
func (s *spread) next(t *topic) int {
	n := len(t.partitions)
	for range n {
		s.turn = (s.turn + 1) % n
		if t.partitions[s.turn].leader != nil {
			break
		}
	}
	return s.turn
}
