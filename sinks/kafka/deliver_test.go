package kafka

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/relay"
	"github.com/auditrelay/auditrelay/relay/relaytest"
)

func TestRecordsAtTheBroker(t *testing.T) {
	t.Parallel()
	for _, compression := range []string{"", "snappy", "zstd", "lz4", "gzip", "none"} {
		t.Run("compression "+compression, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t)
			s := c.sink(t, func(cfg *config.Kafka) { cfg.Compression = compression })
			events := relaytest.Events(100)
			require.NoError(t, s.Deliver(t.Context(), events))
			for i, r := range c.records(t, testTopic) {
				e := &events[i]
				require.Equal(t, string(e.Body), string(r.Value))
				require.Equal(t, "acme/production", string(r.Key))
				require.Equal(t, e.Time.UnixMilli(), r.Timestamp.UnixMilli())
				require.Equal(t, e.ID, header(t, r, "ce_id"))
				require.Equal(t, "application/json", header(t, r, "content-type"))
			}
		})
	}
}

// Several environments share a topic that has several partitions on several brokers. Each keeps
// its order and its partition.
func TestOrderWithinKey(t *testing.T) {
	t.Parallel()
	c := newCluster(t, kfake.NumBrokers(3), kfake.SeedTopics(12, testTopic))
	s := c.sink(t, nil)
	var names []string
	for i := range 20 {
		names = append(names, fmt.Sprintf("acme/env-%d", i))
	}
	var want []relay.Event
	for i := range 5 {
		batch := relaytest.Events(2000, relaytest.From(2000*i), relaytest.Environments(names...))
		require.NoError(t, s.Deliver(t.Context(), batch))
		want = append(want, batch...)
	}
	wantIDs, gotIDs := map[string][]string{}, map[string][]string{}
	for i := range want {
		key := string(environmentKey(nil, &want[i]))
		wantIDs[key] = append(wantIDs[key], want[i].ID)
	}
	partitions := map[string]map[int32]bool{}
	for _, r := range c.records(t, testTopic) {
		key := string(r.Key)
		gotIDs[key] = append(gotIDs[key], header(t, r, "ce_id"))
		if partitions[key] == nil {
			partitions[key] = map[int32]bool{}
		}
		partitions[key][r.Partition] = true
	}
	require.Equal(t, wantIDs, gotIDs)
	for key, in := range partitions {
		assert.Len(t, in, 1, "partitions of %s", key)
	}
}

func TestTopicTemplate(t *testing.T) {
	t.Parallel()
	c := newCluster(t, kfake.SeedTopics(2, "log.acme.production", "log.acme.a_b"))
	s := c.sink(t, func(cfg *config.Kafka) { cfg.Topic = "log.{project}.{environment}" })
	events := relaytest.Events(10, relaytest.Environments("acme/production", "acme/a b"))
	require.NoError(t, s.Deliver(t.Context(), events))
	assert.Len(t, c.records(t, "log.acme.production"), 5)
	assert.Len(t, c.records(t, "log.acme.a_b"), 5)

	// Events of a whole project have no environment.
	require.NoError(t, c.CreateTopic("log.acme._", 1, nil))
	whole := relaytest.Events(1)
	whole[0].Project, whole[0].Environment = "acme", ""
	require.NoError(t, s.Deliver(t.Context(), whole))
	assert.Len(t, c.records(t, "log.acme._"), 1)

	typed := relaytest.Events(2)
	typed[1].Type = "settings.changed"
	for i := range typed {
		require.NoError(t, c.CreateTopic("by."+string(topicValue(nil, typed[i].Type)), 1, nil))
	}
	s = c.sink(t, func(cfg *config.Kafka) { cfg.Topic = "by.{type}" })
	require.NoError(t, s.Deliver(t.Context(), typed))
	assert.Equal(t, []string{typed[1].ID}, ids(t, c.records(t, "by.settings.changed")))

	s = c.sink(t, func(cfg *config.Kafka) { cfg.Topic = "{environment}" })
	bad := relaytest.Events(1, relaytest.Environments("acme/.."))
	err := s.Deliver(t.Context(), bad)
	require.ErrorContains(t, err, "topic \"..\"")
	assert.True(t, permanentAt(err, 0))
}

// permanentAt reports whether err refuses the event at i for good.
func permanentAt(err error, i int) bool {
	var partial *relay.PartialError
	if !errors.As(err, &partial) {
		return false
	}
	for _, f := range partial.Failures {
		if f.Index == i {
			return relay.IsPermanent(f.Err)
		}
	}
	return false
}

// failures returns the indexes that err names. None of the failures may be permanent.
func failures(t *testing.T, err error) []int {
	t.Helper()
	var partial *relay.PartialError
	require.ErrorAs(t, err, &partial)
	var list []int
	for _, f := range partial.Failures {
		assert.False(t, relay.IsPermanent(f.Err), "%v", f.Err)
		list = append(list, f.Index)
	}
	return list
}

func TestOnePartitionFails(t *testing.T) {
	t.Parallel()
	for _, code := range []*kerr.Error{
		kerr.NotLeaderForPartition, kerr.LeaderNotAvailable, kerr.NotEnoughReplicas, kerr.UnknownTopicOrPartition,
		kerr.TopicAuthorizationFailed, kerr.UnknownServerError, kerr.KafkaStorageError, kerr.CorruptMessage,
	} {
		t.Run(code.Message, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t, kfake.SeedTopics(3, testTopic))
			s := c.sink(t, nil)
			events := relaytest.Events(30, relaytest.Environments(
				environmentIn(t, 0, 3), environmentIn(t, 1, 3), environmentIn(t, 2, 3)))
			metadata := c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Metadata}, Observe: true, Count: -1})
			c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Partitions: []int32{1}, Err: code})

			failed := failures(t, s.Deliver(t.Context(), events))
			assert.Equal(t, []int{1, 4, 7, 10, 13, 16, 19, 22, 25, 28}, failed)
			assert.EqualValues(t, 1, metadata.Hits())

			var again []relay.Event
			for _, i := range failed {
				again = append(again, events[i])
			}
			require.NoError(t, s.Deliver(t.Context(), again))
			assert.EqualValues(t, 2, metadata.Hits(), "metadata is fetched again after an error")
			assert.ElementsMatch(t, idsOf(events), ids(t, c.records(t, testTopic)))
		})
	}
}

// Failures of several partitions are named in the order of the events.
func TestSeveralPartitionsFail(t *testing.T) {
	t.Parallel()
	c := newCluster(t, kfake.SeedTopics(3, testTopic))
	s := c.sink(t, nil)
	events := relaytest.Events(9, relaytest.Environments(
		environmentIn(t, 0, 3), environmentIn(t, 1, 3), environmentIn(t, 2, 3)))
	c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Partitions: []int32{0, 2}, Err: kerr.NotEnoughReplicas, Count: -1})
	assert.Equal(t, []int{0, 2, 3, 5, 6, 8}, failures(t, s.Deliver(t.Context(), events)))
}

// The leader of a partition really moves to another broker.
func TestLeaderMoves(t *testing.T) {
	t.Parallel()
	c := newCluster(t, kfake.NumBrokers(3))
	s := c.sink(t, nil)
	first, second := relaytest.Events(10), relaytest.Events(10, relaytest.From(10))
	require.NoError(t, s.Deliver(t.Context(), first))
	leader := c.LeaderFor(testTopic, 0)
	require.NoError(t, c.MoveTopicPartition(testTopic, 0, (leader+1)%3))

	err := s.Deliver(t.Context(), second)
	require.ErrorIs(t, err, kafkaError(6))
	require.NoError(t, s.Deliver(t.Context(), second))
	assert.Equal(t, idsOf(append(first, second...)), ids(t, c.records(t, testTopic)))
}

// When the connection is cut between two requests of a partition, acknowledged events are not
// sent again, and no event overtakes another.
func TestConnectionCut(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	s := c.sink(t, nil)
	s.limit.Store(20_000) // several requests per delivery
	events := relaytest.Events(200)
	requests := 0
	c.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		if requests++; requests == 3 {
			return nil, errors.New("cut"), true
		}
		return nil, nil, false
	})
	failed := failures(t, s.Deliver(t.Context(), events))
	arrived := len(c.records(t, testTopic))
	require.Greater(t, arrived, 0)
	require.Equal(t, arrived, failed[0], "all except what follows the cut")
	require.Len(t, failed, len(events)-arrived)
	require.NoError(t, s.Deliver(t.Context(), events[arrived:]))
	assert.Equal(t, idsOf(events), ids(t, c.records(t, testTopic)))
}

// When the connection is cut between the halves of a refused request, nothing that follows is
// sent, because it would overtake.
func TestConnectionCutBetweenHalves(t *testing.T) {
	t.Parallel()
	inBothModes(t, testConnectionCutBetweenHalves)
}

// inBothModes runs test with one record per event, and with many events per record.
func inBothModes(t *testing.T, test func(t *testing.T, mode string)) {
	t.Helper()
	for _, mode := range []string{"binary", "batch"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			test(t, mode)
		})
	}
}

func testConnectionCutBetweenHalves(t *testing.T, mode string) {
	c := newCluster(t)
	s := c.sink(t, func(cfg *config.Kafka) { cfg.Mode = mode })
	var requests atomic.Int32
	c.ControlKey(int16(kmsg.Produce), func(r kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		switch requests.Add(1) {
		case 1, 2: // the whole, and its first half
			return refusal(r), nil, true
		case 4: // the second quarter
			return nil, errors.New("cut"), true
		}
		return nil, nil, false
	})
	events := relaytest.Events(40)
	failed := failures(t, s.Deliver(t.Context(), events))
	require.Len(t, failed, 30)
	require.Equal(t, 10, failed[0])
	assert.EqualValues(t, 4, requests.Load())
	assert.Equal(t, idsOf(events[:10]), ids(t, c.records(t, testTopic)))
}

// refusal answers a produce request with MESSAGE_TOO_LARGE.
func refusal(r kmsg.Request) kmsg.Response {
	req := r.(*kmsg.ProduceRequest)
	res := req.ResponseKind().(*kmsg.ProduceResponse)
	for _, topic := range req.Topics {
		answer := kmsg.NewProduceResponseTopic()
		answer.Topic = topic.Topic
		for _, p := range topic.Partitions {
			refused := kmsg.NewProduceResponseTopicPartition()
			refused.Partition, refused.ErrorCode = p.Partition, kerr.MessageTooLarge.Code
			answer.Partitions = append(answer.Partitions, refused)
		}
		res.Topics = append(res.Topics, answer)
	}
	return res
}

func TestAllReplicasAcknowledge(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	s := c.sink(t, nil)
	acks := make(chan int16, 1)
	c.ControlKey(int16(kmsg.Produce), func(r kmsg.Request) (kmsg.Response, error, bool) {
		acks <- r.(*kmsg.ProduceRequest).Acks
		return nil, nil, false
	})
	require.NoError(t, s.Deliver(t.Context(), relaytest.Events(1)))
	assert.EqualValues(t, -1, <-acks)
}

func TestSlowBrokerAndCancel(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	s := c.sink(t, nil)
	require.NoError(t, s.Deliver(t.Context(), relaytest.Events(1)))
	got := make(chan struct{}, 1)
	c.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		got <- struct{}{}
		return nil, nil, true // never answered and never stored
	})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-got
		cancel()
	}()
	s.limit.Store(20_000)
	start := time.Now()
	err := s.Deliver(ctx, relaytest.Events(1000, relaytest.From(1)))
	require.ErrorIs(t, err, context.Canceled)
	assert.Less(t, time.Since(start), requestTimeout)
	assert.Len(t, c.records(t, testTopic), 1, "nothing is sent after the cancelled request")
}

func TestTooLarge(t *testing.T) {
	t.Parallel()
	inBothModes(t, testTooLarge)
}

func testTooLarge(t *testing.T, mode string) {
	for _, compression := range []string{"snappy", "none"} {
		c := newCluster(t, kfake.BrokerConfigs(map[string]string{"message.max.bytes": "20000"}))
		s := c.sink(t, func(cfg *config.Kafka) { cfg.Compression, cfg.Mode = compression, mode })
		events := relaytest.Events(1000)
		events[500].Body = make([]byte, 30_000)
		_, _ = rand.Read(events[500].Body)

		err := s.Deliver(t.Context(), events)
		var partial *relay.PartialError
		require.ErrorAs(t, err, &partial)
		require.Len(t, partial.Failures, 1)
		assert.Equal(t, 500, partial.Failures[0].Index)
		require.True(t, permanentAt(err, 500))
		require.ErrorContains(t, partial.Failures[0].Err, "30000 bytes")

		rest := append(idsOf(events[:500]), idsOf(events[501:])...)
		assert.Equal(t, rest, ids(t, c.records(t, testTopic)))

		// The sink has learned: it splits the next delivery before sending it.
		requests := c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Observe: true, Count: -1})
		more := relaytest.Events(1000, relaytest.From(1000))
		require.NoError(t, s.Deliver(t.Context(), more))
		var size int64
		for i := range more {
			size += recordSize(&more[i])
		}
		fewest := size/s.limit.Load() + 1
		assert.LessOrEqual(t, int64(requests.Hits()), fewest+fewest/4, "requests with %s", compression)
		assert.Equal(t, append(rest, idsOf(more)...), ids(t, c.records(t, testTopic)))
	}
}

func TestNarrow(t *testing.T) {
	t.Parallel()
	s := &Sink{}
	s.limit.Store(1 << 20)
	w := worker{sink: s, events: relaytest.Events(4)}
	w.events[3].Body = make([]byte, 1<<20)
	w.narrow([]int32{0, 1, 2, 3})
	assert.EqualValues(t, 1<<20, s.limit.Load(), "one large record says nothing of the others")
	w.narrow([]int32{0, 1, 2})
	assert.EqualValues(t, leastLimit, s.limit.Load())
	s.widen()
	assert.EqualValues(t, leastLimit+leastLimit/widening, s.limit.Load())
}

// The sink finds the record that the broker refuses, and delivers the others.
func TestInvalidRecord(t *testing.T) {
	t.Parallel()
	inBothModes(t, testInvalidRecord)
}

func testInvalidRecord(t *testing.T, mode string) {
	c := newCluster(t)
	s := c.sink(t, func(cfg *config.Kafka) { cfg.Mode = mode })
	events := relaytest.Events(50)
	c.Fault(kfake.Fault{
		Keys: []kmsg.Key{kmsg.Produce}, Topic: testTopic, Err: kerr.InvalidTimestamp, Count: -1,
		When: func(r kmsg.Request) bool { return holds(r, events[33].ID) },
	})
	err := s.Deliver(t.Context(), events)
	require.True(t, permanentAt(err, 33), "%v", err)
	rest := append(idsOf(events[:33]), idsOf(events[34:])...)
	assert.Equal(t, rest, ids(t, c.records(t, testTopic)))
}

// holds reports whether a produce request holds an event.
func holds(r kmsg.Request, id string) bool {
	for _, topic := range r.(*kmsg.ProduceRequest).Topics {
		for _, p := range topic.Partitions {
			fetched := kmsg.NewFetchResponseTopicPartition()
			fetched.RecordBatches = p.Records
			fetched.HighWatermark = 1 << 40
			got, _ := kgo.ProcessFetchPartition(kgo.ProcessFetchPartitionOpts{}, &fetched, kgo.DefaultDecompressor(), nil)
			for _, record := range got.Records {
				if bytes.Contains(record.Value, []byte(`,"id":"`+id+`"`)) { // of a batch
					return true
				}
				for _, h := range record.Headers {
					if h.Key == "ce_id" && string(h.Value) == id {
						return true
					}
				}
			}
		}
	}
	return false
}
