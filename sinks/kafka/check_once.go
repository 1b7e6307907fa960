package kafka

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
)

// once examines what exactly_once needs, and writes nothing. t is a topic of the events that
// exists, or nil.
func (c *checkup) once(ctx context.Context, o *once, t *kafka.Topic) {
	const what = "delivery: exactly_once"
	if err := o.supported(ctx); err != nil {
		c.fail(what, err)
		return
	}
	there := c.positions(ctx, o)
	coordinator, err := o.coordinator(ctx, c.asked)
	if err == nil {
		err = o.permitted(ctx, coordinator, there, t)
	}
	if err != nil {
		c.fail(what, err)
		return
	}
	c.report(what, `the brokers have transactions, and take transactional ids that begin with "auditrelay."; consumers must read with isolation.level=read_committed`)
}

// positions reports the position topic, and whether it is there.
func (c *checkup) positions(ctx context.Context, o *once) bool {
	what := "topic " + o.topic
	_, err := o.sink.look(ctx, c.asked, o.topic)
	if errors.Is(err, kafka.UnknownTopicOrPartition) && o.create {
		if err := o.makePositions(ctx, c.asked, true); err != nil {
			c.fail(what, fmt.Errorf("the topic for the position does not exist, and would not be created: %w", advise(err)))
			return false
		}
		c.report(what, "the topic for the position does not exist, and would be created, with one partition and cleanup.policy=compact")
		return false
	}
	if _, err := o.positions(ctx, c.asked); err != nil {
		c.fail(what, err)
		return false
	}
	c.report(what, "has the position, in its first partition")
	return true
}

// transactionAPIs are what a broker must know.
var transactionAPIs = []protocol.ApiKey{protocol.InitProducerId, protocol.AddPartitionsToTxn, protocol.EndTxn}

// supported asks whether the brokers have transactions.
func (o *once) supported(ctx context.Context) error {
	res, err := firstAnswer(ctx, o.sink.brokers, func(ctx context.Context, broker net.Addr) (*kafka.ApiVersionsResponse, error) {
		return o.sink.client.ApiVersions(ctx, &kafka.ApiVersionsRequest{Addr: broker})
	})
	if err != nil {
		return advise(err)
	}
	known := map[protocol.ApiKey]bool{}
	for _, k := range res.ApiKeys {
		known[protocol.ApiKey(k.ApiKey)] = true
	}
	for _, key := range transactionAPIs {
		if !known[key] {
			return fmt.Errorf("the brokers have no transactions (they lack %s): use Kafka 0.11 or later, or delivery: at_least_once", key)
		}
	}
	return nil
}

// permitted asks whether the sink may have transactions over its topics. It names a producer that
// does not exist, so that nothing begins: brokers look at the permissions first.
func (o *once) permitted(ctx context.Context, coordinator net.Addr, there bool, t *kafka.Topic) error {
	topics := map[string][]kafka.AddPartitionToTxn{}
	if there {
		topics[o.topic] = []kafka.AddPartitionToTxn{{Partition: 0}}
	}
	if t != nil {
		topics[t.Name] = []kafka.AddPartitionToTxn{{Partition: t.Partitions[0].ID}}
	}
	if len(topics) == 0 {
		return nil
	}
	err := o.sink.addPartitions(ctx, &kafka.AddPartitionsToTxnRequest{
		Addr: coordinator, TransactionalID: o.id, ProducerID: -1, ProducerEpoch: -1, Topics: topics,
	})
	if errors.Is(err, kafka.InvalidProducerIDMapping) {
		return nil
	}
	return advise(err)
}
