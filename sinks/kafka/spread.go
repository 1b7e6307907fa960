package kafka

import "github.com/segmentio/kafka-go"

// spread chooses partitions. Records with a key go where the key's hash says,
// whether that partition has a leader or not, so that a key keeps its
// partition; the others go around the partitions that can take them.
type spread struct {
	balancer kafka.Balancer // nil: keys do not matter
	turn     int
}

// choose returns an index into t.partitions, of which there is at least one.
//
// With murmur2 and crc32 it is the partition that the Java client and
// librdkafka choose. A record without a key gets any partition there; for
// librdkafka, an empty key is none.
func (s *spread) choose(t *topic, key []byte) int {
	if s.balancer == nil || key == nil {
		return s.next(t)
	}
	return s.balancer.Balance(kafka.Message{Key: key}, t.ids...)
}

// next goes around the partitions that have a leader, or, where none has, all.
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
