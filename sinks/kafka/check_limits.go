package kafka

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/segmentio/kafka-go"
)

// Settings of brokers and topics (Kafka's documentation, 3.1 and 3.2).
const (
	brokerLimit = "message.max.bytes"
	topicLimit  = "max.message.bytes"
	leastInSync = "min.insync.replicas"
)

// limits reports the cluster's limits. Asking for them needs a permission that deliveries do
// not need, so it is no error if they cannot be had. t is nil if there is no topic to examine.
func (c *checkup) limits(ctx context.Context, res *kafka.MetadataResponse, t *kafka.Topic) {
	if len(res.Brokers) == 0 {
		return
	}
	b := res.Brokers[0]
	of := []kafka.DescribeConfigRequestResource{{
		ResourceType: kafka.ResourceTypeBroker, ResourceName: strconv.Itoa(b.ID), ConfigNames: []string{brokerLimit, leastInSync},
	}}
	if t != nil {
		of = append(of, kafka.DescribeConfigRequestResource{
			ResourceType: kafka.ResourceTypeTopic, ResourceName: t.Name, ConfigNames: []string{topicLimit, leastInSync},
		})
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	answer, err := c.sink.client.DescribeConfigs(ctx, &kafka.DescribeConfigsRequest{Addr: kafka.TCP(address(b)), Resources: of})
	if err != nil {
		c.report("limits", "the broker does not tell them: "+bare(err).Error())
		return
	}
	for i := range answer.Resources {
		c.limitsOf(&answer.Resources[i], b, t)
	}
}

func (c *checkup) limitsOf(r *kafka.DescribeConfigResponseResource, b kafka.Broker, t *kafka.Topic) {
	isTopic := r.ResourceType == int8(kafka.ResourceTypeTopic) && t != nil
	what := fmt.Sprintf("limits of broker %d", b.ID)
	if isTopic {
		what = "limits of topic " + t.Name
	}
	if r.Error != nil {
		c.report(what, fmt.Sprintf("the broker does not tell them: %v (asking needs the permission DescribeConfigs, which deliveries do not need)", code(r.Error)))
		return
	}
	values := map[string]int64{}
	for _, e := range r.ConfigEntries {
		n, err := strconv.ParseInt(e.ConfigValue, 10, 64)
		if err != nil {
			continue
		}
		values[e.ConfigName] = n
		c.report(what, fmt.Sprintf("%s %d", e.ConfigName, n))
	}
	if isTopic {
		c.compare(values[topicLimit])
		c.inSync(what, values[leastInSync], t)
	} else if t == nil {
		c.compare(values[brokerLimit])
	}
}

// code returns the error without the text that the broker gave with its code.
func code(err error) error {
	var code kafka.Error
	if errors.As(err, &code) {
		return code
	}
	return err
}

// compare reports how a delivery of batch_bytes fits into a limit for one request.
func (c *checkup) compare(limit int64) {
	batch := c.sink.batchBytes
	switch {
	case limit <= 0 || batch <= 0:
	case batch > limit:
		c.report("batch_bytes", fmt.Sprintf("%d before compression, and a request takes %d: a larger delivery goes in several requests, and an event that alone is larger to the dead letters", batch, limit))
	default:
		c.report("batch_bytes", fmt.Sprintf("%d, which a request of %d takes", batch, limit))
	}
}

// inSync fails if a partition has too few replicas in sync to acknowledge a record.
func (c *checkup) inSync(what string, least int64, t *kafka.Topic) {
	for _, p := range t.Partitions {
		if int64(len(p.Isr)) < least {
			c.fail(what, fmt.Errorf("partition %d has %d replicas in sync: %w", p.ID, len(p.Isr), advise(kafka.NotEnoughReplicas)))
			return
		}
	}
}
