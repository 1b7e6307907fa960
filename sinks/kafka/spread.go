package kafka

import "github.com/segmentio/kafka-go"

// spread chooses partitions. The key's hash chooses the partition, with or without a
// leader, so a key keeps its partition; records without a key go around the available
// partitions.
type spread struct {
	balancer kafka.Balancer // nil: keys do not matter
	turn     int
}

// choose returns an index into t.partitions, never empty.
//
// With murmur2 and crc32 it is the choice of the Java client and of librdkafka. A record
// without a key gets any partition there; for librdkafka, an empty key is none.
func (s *spread) choose(t *topic, key []byte) int {
	if s.balancer == nil || key == nil {
		return s.next(t)
	}
	return s.balancer.Balance(kafka.Message{Key: key}, t.ids...)
}

// next goes around the partitions with a leader, or, without any leader, all.
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
