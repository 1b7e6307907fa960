package kafka

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/segmentio/kafka-go"
)

// positionConfig is how the position topic is made. Only the newest record of a key matters, so
// small segments keep the reading at a start short.
var positionConfig = []kafka.ConfigEntry{
	{ConfigName: cleanup, ConfigValue: "compact"},
	{ConfigName: "segment.bytes", ConfigValue: "4194304"},
	{ConfigName: "segment.ms", ConfigValue: "3600000"},
	{ConfigName: "min.cleanable.dirty.ratio", ConfigValue: "0.1"},
}

const cleanup = "cleanup.policy"

// errNoPositions says how to make the topic by hand.
var errNoPositions = errors.New("the topic for the position does not exist: make it, with one partition and cleanup.policy=compact, or set create_topic")

// positions makes sure that the position topic is there and compacted, and returns the leader of
// its first partition.
func (o *once) positions(ctx context.Context, brokers []string) (net.Addr, error) {
	t, err := o.sink.look(ctx, brokers, o.topic)
	if errors.Is(err, kafka.UnknownTopicOrPartition) {
		if err = errNoPositions; o.create {
			err = o.makePositions(ctx, brokers, false)
		}
		if err != nil {
			return nil, fmt.Errorf("topic %s: %w", o.topic, advise(err))
		}
		o.sink.log.Info("kafka topic created", "topic", o.topic)
		t, err = o.sink.look(ctx, brokers, o.topic)
	}
	if err != nil {
		return nil, err
	}
	leader := t.partitions[0].leader
	if err = kafka.LeaderNotAvailable; leader != nil {
		err = o.compacted(ctx, leader)
	}
	if err != nil {
		return nil, fmt.Errorf("topic %s: %w", o.topic, advise(err))
	}
	return leader, nil
}

// makePositions creates the position topic, or asks whether it would be created.
func (o *once) makePositions(ctx context.Context, brokers []string, onlyAsk bool) error {
	res, err := firstAnswer(ctx, brokers, func(ctx context.Context, broker net.Addr) (*kafka.MetadataResponse, error) {
		return o.sink.client.Metadata(ctx, &kafka.MetadataRequest{Addr: broker, Topics: []string{}})
	})
	if err != nil {
		return err
	}
	made, err := o.sink.client.CreateTopics(ctx, &kafka.CreateTopicsRequest{
		Addr: kafka.TCP(address(res.Controller)), ValidateOnly: onlyAsk,
		Topics: []kafka.TopicConfig{{
			Topic: o.topic, NumPartitions: 1, ReplicationFactor: o.sink.create.ReplicationFactor, ConfigEntries: positionConfig,
		}},
	})
	if err != nil {
		return bare(err)
	}
	if err := made.Errors[o.topic]; err != nil && !errors.Is(err, kafka.TopicAlreadyExists) {
		return fmt.Errorf("create it: %w", err)
	}
	return nil
}

// compacted fails if the position topic would lose the position of a sink that rests, or grow for
// ever. Asking needs a permission that deliveries do not need, so it is no error if the broker
// does not tell.
func (o *once) compacted(ctx context.Context, broker net.Addr) error {
	res, err := o.sink.client.DescribeConfigs(ctx, &kafka.DescribeConfigsRequest{Addr: broker, Resources: []kafka.DescribeConfigRequestResource{{
		ResourceType: kafka.ResourceTypeTopic, ResourceName: o.topic, ConfigNames: []string{cleanup},
	}}})
	if err != nil {
		return bare(err)
	}
	for _, r := range res.Resources {
		for _, e := range r.ConfigEntries {
			if e.ConfigName == cleanup && strings.TrimSpace(e.ConfigValue) != "compact" {
				return fmt.Errorf("its %s is %q, and must be compact alone, or the position of a sink that rests is removed", cleanup, e.ConfigValue)
			}
		}
	}
	return nil
}
