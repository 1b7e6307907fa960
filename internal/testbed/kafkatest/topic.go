// Package kafkatest runs Kafka brokers, and reads their topics back:
//
//   - [StartCluster] runs Apache Kafka, as processes to kill and start again.
//   - [StartStandIn] runs a stand-in in this process.
//
// All of them listen on loopback.
package kafkatest

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/auditrelay/auditrelay/internal/routing/cloudevents"
	"github.com/auditrelay/auditrelay/relay"
)

// Client asks brokers. It outlives their restarts.
type Client struct {
	// Brokers are HOST:PORT.
	Brokers []string

	client *kgo.Client
	admin  *kadm.Client
}

// connect connects lazily: one answering broker is enough.
func (c *Client) connect() error {
	client, err := kgo.NewClient(kgo.SeedBrokers(c.Brokers...))
	if err != nil {
		return fmt.Errorf("connect to kafka: %w", err)
	}
	c.client, c.admin = client, kadm.NewClient(client)
	return nil
}

// Close disconnects.
func (c *Client) Close() {
	if c.client != nil {
		c.client.Close()
	}
}

// StandIn is a broker in this process, with six partitions to a topic.
type StandIn struct {
	Client

	broker *kfake.Cluster
}

// StartStandIn starts a stand-in on listen's listener; nil stands for [net.Listen]. It
// names the listener's Addr to clients.
func StartStandIn(listen func(network, address string) (net.Listener, error)) (*StandIn, error) {
	options := []kfake.Opt{kfake.NumBrokers(1), kfake.DefaultNumPartitions(6)}
	if listen != nil {
		options = append(options, kfake.ListenFn(listen))
	}
	broker, err := kfake.NewCluster(options...)
	if err != nil {
		return nil, fmt.Errorf("start the stand-in for Kafka: %w", err)
	}
	s := &StandIn{Client: Client{Brokers: broker.ListenAddrs()}, broker: broker}
	if err := s.connect(); err != nil {
		broker.Close()
		return nil, err
	}
	return s, nil
}

// Close disconnects, and ends the stand-in.
func (s *StandIn) Close() {
	s.Client.Close()
	s.broker.Close()
}

// On returns a topic to read back. It need not exist yet.
func (c *Client) On(name string) *Topic { return &Topic{Client: c, Topic: name} }

// Topic is a topic to read back, a destination for package readback.
type Topic struct {
	*Client

	// Topic is its name.
	Topic string
}

// Create makes the topic, for clients unable to. Negative partitions stand for the
// broker's default. The number of replicas is the broker's default.
func (t *Topic) Create(ctx context.Context, partitions int32) error {
	if _, err := t.admin.CreateTopic(ctx, partitions, -1, nil, t.Topic); err != nil {
		return fmt.Errorf("create the kafka topic %s: %w", t.Topic, err)
	}
	return nil
}

// Name returns "kafka".
func (t *Topic) Name() string { return "kafka" }

// ends returns each partition's end offset, and nothing for a missing topic.
func (t *Topic) ends(ctx context.Context) (map[int32]int64, error) {
	listed, err := t.admin.ListEndOffsets(ctx, t.Topic)
	if err != nil {
		return nil, err
	}
	ends := map[int32]int64{}
	for _, o := range listed[t.Topic] {
		if o.Err == nil && o.Offset > 0 {
			ends[o.Partition] = o.Offset
		}
	}
	return ends, nil
}

// Count returns how many records the topic has.
func (t *Topic) Count(ctx context.Context) (n int64, err error) {
	ends, err := t.ends(ctx)
	for _, end := range ends {
		n += end
	}
	return n, err
}

// Read passes on what consumers get that read committed records only. It passes each event's CloudEvents id and body to record, from the start of each
// partition. A record in structured mode has no id, and the whole event as its body.
func (t *Topic) Read(ctx context.Context, record func(id string, body []byte)) error {
	ends, err := t.ends(ctx)
	if err != nil || len(ends) == 0 {
		return err
	}
	from := map[int32]kgo.Offset{}
	for p := range ends {
		from[p] = kgo.NewOffset().AtStart()
	}
	reader, err := kgo.NewClient(kgo.SeedBrokers(t.Brokers...), kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{t.Topic: from}),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.KeepControlRecords()) // the last record may be the mark of a transaction
	if err != nil {
		return err
	}
	defer reader.Close()
	for len(ends) > 0 {
		fetches := reader.PollFetches(ctx)
		if err := errors.Join(ctx.Err(), fetches.Err()); err != nil {
			return err
		}
		fetches.EachRecord(func(r *kgo.Record) {
			if !r.Attrs.IsControl() {
				err = errors.Join(err, pass(r, record))
			}
			if r.Offset+1 >= ends[r.Partition] {
				delete(ends, r.Partition)
			}
		})
	}
	return err
}

// pass passes on the event of r, or, in batch mode, each event.
func pass(r *kgo.Record, record func(id string, body []byte)) error {
	if header(r, "content-type") != cloudevents.BatchMediaType {
		record(header(r, "ce_id"), r.Value)
		return nil
	}
	for text, err := range cloudevents.Split(r.Value) {
		var e relay.Event
		if err == nil {
			e, err = cloudevents.ParseJSON(text)
		}
		if err != nil {
			return fmt.Errorf("record %d of partition %d: %w", r.Offset, r.Partition, err)
		}
		record(e.ID, e.Body)
	}
	return nil
}

func header(r *kgo.Record, key string) string {
	for _, h := range r.Headers {
		if h.Key == key {
			return string(h.Value)
		}
	}
	return ""
}
