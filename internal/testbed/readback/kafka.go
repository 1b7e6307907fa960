package readback

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Kafka is a broker: a real one, or a stand-in in the process.
type Kafka struct {
	// Brokers are HOST:PORT.
	Brokers []string
	// Topic is what is read back.
	Topic string

	standIn *kfake.Cluster // nil with a real broker
	client  *kgo.Client
	admin   *kadm.Client
}

// StartKafka connects to the broker at address, or, where that is empty, starts a
// stand-in in the process.
func StartKafka(address, topic string) (*Kafka, error) {
	if address == "" {
		return StandInForKafka(topic, net.Listen) //nolint:noctx // it ends with Close
	}
	return ConnectKafka([]string{address}, topic)
}

// ConnectKafka connects to real brokers; the first that answers is enough.
func ConnectKafka(brokers []string, topic string) (*Kafka, error) {
	d := &Kafka{Brokers: brokers, Topic: topic}
	return d, d.connect()
}

// StandInForKafka starts a stand-in in the process on the listener that listen
// gives. Its Addr is what clients are told to connect to.
func StandInForKafka(topic string, listen func(network, address string) (net.Listener, error)) (*Kafka, error) {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.DefaultNumPartitions(6), kfake.ListenFn(listen))
	if err != nil {
		return nil, fmt.Errorf("start the stand-in for Kafka: %w", err)
	}
	d := &Kafka{standIn: cluster, Brokers: cluster.ListenAddrs(), Topic: topic}
	return d, d.connect()
}

func (d *Kafka) connect() error {
	client, err := kgo.NewClient(kgo.SeedBrokers(d.Brokers...))
	if err != nil {
		d.Close()
		return fmt.Errorf("connect to Kafka: %w", err)
	}
	d.client, d.admin = client, kadm.NewClient(client)
	return nil
}

// Create makes the topic, for clients that do not.
func (d *Kafka) Create(ctx context.Context) error {
	const brokersDefault = -1
	if _, err := d.admin.CreateTopic(ctx, brokersDefault, brokersDefault, nil, d.Topic); err != nil {
		return fmt.Errorf("create topic %s: %w", d.Topic, err)
	}
	return nil
}

// On gives the same broker with another topic. It is closed with d.
func (d *Kafka) On(topic string) *Kafka {
	other := *d
	other.Topic = topic
	return &other
}

// Describe says in words what broker it is.
func (d *Kafka) Describe() string {
	if d.standIn == nil {
		return fmt.Sprintf("%s, topic %s", d.Brokers[0], d.Topic)
	}
	return fmt.Sprintf("%s, topic %s (a stand-in broker in this process; --kafka HOST:PORT uses a real one)", d.Brokers[0], d.Topic)
}

// Close disconnects, and ends a stand-in.
func (d *Kafka) Close() {
	if d.client != nil {
		d.client.Close()
	}
	if d.standIn != nil {
		d.standIn.Close()
	}
}

// Name implements [Destination].
func (d *Kafka) Name() string { return "kafka" }

// ends gives each partition's end offset, without any for a topic that is not there yet.
func (d *Kafka) ends(ctx context.Context) (map[int32]int64, error) {
	listed, err := d.admin.ListEndOffsets(ctx, d.Topic)
	if err != nil {
		return nil, err
	}
	ends := map[int32]int64{}
	for _, o := range listed[d.Topic] {
		if o.Err == nil && o.Offset > 0 {
			ends[o.Partition] = o.Offset
		}
	}
	return ends, nil
}

// Count implements [Destination].
func (d *Kafka) Count(ctx context.Context) (n int64, err error) {
	ends, err := d.ends(ctx)
	for _, end := range ends {
		n += end
	}
	return n, err
}

// Read implements [Destination].
func (d *Kafka) Read(ctx context.Context, record func(id string, body []byte)) error {
	ends, err := d.ends(ctx)
	if err != nil || len(ends) == 0 {
		return err
	}
	from := map[int32]kgo.Offset{}
	for p := range ends {
		from[p] = kgo.NewOffset().AtStart()
	}
	reader, err := kgo.NewClient(kgo.SeedBrokers(d.Brokers...), kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{d.Topic: from}))
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
			record(header(r, "ce_id"), r.Value)
			if r.Offset+1 >= ends[r.Partition] {
				delete(ends, r.Partition)
			}
		})
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
