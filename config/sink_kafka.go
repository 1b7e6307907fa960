package config

import (
	"fmt"
	"slices"
	"strings"

	"github.com/auditrelay/auditrelay/config/secret"
	"github.com/auditrelay/auditrelay/internal/jsontext"
)

// Kafka delivers to Kafka.
type Kafka struct {
	// Brokers are HOST:PORT, at least one.
	Brokers []string `yaml:"brokers"`
	// Topic may hold {type}, {project} and {environment}. Default auditrelay.events.
	Topic string `yaml:"topic" default:"auditrelay.events"`
	// Key is a record's partition key: environment (default), subject, id, none (round-robin),
	// or a JSON pointer into the body (RFC 6901), such as /user/id. The key is then the value's
	// text: a string unescaped, a number, true or false as written. A body in which the value
	// is missing, empty, null, an object or an array has no key, and goes round-robin.
	Key string `yaml:"key" default:"environment"`
	// Partitioner is murmur2 (as Java's, the default), crc32 (as librdkafka's)
	// or round-robin.
	Partitioner string `yaml:"partitioner" default:"murmur2" check:"murmur2|crc32|round-robin"`
	// Compression is zstd, lz4, snappy (default), gzip or none.
	Compression string `yaml:"compression" default:"snappy" check:"zstd|lz4|snappy|gzip|none"`
	// Mode is how records carry CloudEvents:
	//
	//   - binary (default): one event a record, its attributes as headers, the body
	//     untouched.
	//   - structured: one event a record, as one JSON object, with the header
	//     content-type: application/cloudevents+json.
	//   - batch: consecutive events of one key and partition as one JSON array, up to
	//     128 KiB before compression (a larger event goes alone), with the header
	//     content-type: application/cloudevents-batch+json.
	//
	// Choose batch if a record for each event costs brokers and consumers too much, and
	// all consumers split the arrays. Choose another one for a compacted topic, or for a
	// consumer of one event a record. The array is CloudEvents' JSON batch format, under
	// its registered media type; to send it to Kafka is this relay's own convention, as
	// CloudEvents' Kafka binding defines no batched mode.
	Mode string `yaml:"mode" default:"binary" check:"binary|structured|batch"`
	// Delivery is at_least_once (default) or exactly_once.
	//
	// With exactly_once each delivery is one transaction, which also holds the sink's position in
	// the journal, as a record of PositionTopic. After a crash or a lost answer the sink reads that
	// record, and skips what the topic has. Consumers must read with isolation.level
	// read_committed. The brokers have to be Kafka 0.11 or later, and the sink's principal needs
	// Describe and Write on the transactional ids that begin with "auditrelay.". Replays, and dead
	// letters that are replayed, are delivered at least once. Parallel must be 1.
	Delivery string `yaml:"delivery" default:"at_least_once" check:"at_least_once|exactly_once"`
	// PositionTopic is the topic for the positions. It must be compacted (cleanup.policy=compact),
	// and is best left to one sink. Default auditrelay.positions.NAME, with the sink's name. If it
	// is missing, create_topic makes it.
	PositionTopic string `yaml:"position_topic"`
	// CreateTopic makes a topic that is missing, with Partitions and ReplicationFactor (default
	// -1: as the broker has it).
	CreateTopic       bool `yaml:"create_topic"`
	Partitions        int  `yaml:"partitions" default:"-1"`
	ReplicationFactor int  `yaml:"replication_factor" default:"-1"`
	// TLS is for the brokers; {} takes the system's roots. Default: no TLS.
	TLS *TLSClient `yaml:"tls"`
	// SASL authenticates to the brokers. Default: no authentication.
	SASL *KafkaSASL `yaml:"sasl"`
}

// KafkaSASL authenticates to Kafka.
type KafkaSASL struct {
	// Mechanism is plain, scram-sha-256 or scram-sha-512.
	Mechanism string `yaml:"mechanism" check:"plain|scram-sha-256|scram-sha-512"`
	// Username and Password are those of the principal.
	Username string      `yaml:"username" check:"required"`
	Password secret.Text `yaml:"password" check:"required"`
}

const exactlyOnce = "exactly_once"

// ExactlyOnce reports whether each event is to be delivered once, and in order.
func (s *Sink) ExactlyOnce() bool { return s.Kafka != nil && s.Kafka.ExactlyOnce() }

// ExactlyOnce reports whether delivery is exactly_once.
func (c *Kafka) ExactlyOnce() bool { return c.Delivery == exactlyOnce }

func (c *Kafka) setDefaults(s *Sink) {
	if !c.ExactlyOnce() {
		return
	}
	if c.PositionTopic == "" {
		c.PositionTopic = "auditrelay.positions." + s.Name
	}
	setDefault(&s.BatchEvents, 20_000) // larger transactions, since each has a price
	setDefault(&s.BatchBytes, 16<<20)
}

func (c *Kafka) check(k *checker, at string, s *Sink) {
	k.failIf(len(c.Brokers) == 0, at+".brokers", nil, "is required: at least one HOST:PORT")
	for i, b := range c.Brokers {
		if host, ok := splitHostPort(b, 1); !ok || !isHost(host) {
			k.fail(fmt.Sprintf("%s.brokers[%d]", at, i), b, "must be HOST:PORT, such as kafka-1.example.com:9092")
		}
	}
	plain := func(r rune) bool { return isWord(r) || strings.ContainsRune(".{}", r) }
	if k.template(at+".topic", c.Topic) && (len(c.Topic) > 249 || !all(c.Topic, plain) || c.Topic == "." || c.Topic == "..") {
		k.fail(at+".topic", c.Topic, `must be at most 249 letters, digits, ".", "-" and "_", and placeholders; "." and ".." alone are no topics`)
	}
	k.kafkaKey(at+".key", c.Key)
	if s.Redact != nil {
		k.redactedKey(at+".key", c.Key, s.Redact)
	}
	k.warnIf(c.Mode == "batch" && c.Key == "id", at+".mode", "has no effect with key: id: a record holds events of one key, so each event has its own")
	if (c.Mode == "structured" || c.Mode == "batch") && s.Format == FormatOCSF {
		k.fail(at+".mode", c.Mode, "would put each OCSF object into an envelope of CloudEvents; use binary, whose value is the object alone")
	}
	k.delivery(at, c, s)
	k.created(at+".partitions", c.Partitions, 100_000, c.CreateTopic)
	k.created(at+".replication_factor", c.ReplicationFactor, 100, c.CreateTopic)
	if c.SASL != nil {
		k.sasl(at, c)
	}
}

// delivery checks what exactly_once asks for.
func (k *checker) delivery(at string, c *Kafka, s *Sink) {
	switch {
	case !c.ExactlyOnce() && c.PositionTopic != "":
		k.warn(at+".position_topic", "has no effect without delivery: exactly_once")
	case !c.ExactlyOnce():
	case len(c.PositionTopic) > 249 || !all(c.PositionTopic, func(r rune) bool { return isWord(r) || r == '.' }):
		k.fail(at+".position_topic", c.PositionTopic, `must be at most 249 letters, digits, ".", "-" and "_"`)
	case c.PositionTopic == c.Topic:
		k.fail(at+".position_topic", c.PositionTopic, "is the topic of the events; it must be another one, which is compacted")
	}
	if c.ExactlyOnce() && s.Parallel > 1 {
		k.fail(strings.TrimSuffix(at, "kafka")+"parallel", s.Parallel, "must be 1 with kafka.delivery: exactly_once, since deliveries that overtake each other have no position")
	}
}

// kafkaKey checks the name of an attribute, or a JSON pointer.
func (k *checker) kafkaKey(path, value string) {
	if !strings.HasPrefix(value, "/") {
		if !slices.Contains([]string{"environment", "subject", "id", "none"}, value) {
			k.fail(path, value, "must be one of environment, subject, id, none, or a JSON pointer into the body, such as /user/id")
		}
		return
	}
	if _, err := jsontext.ParsePointer(value); err != nil {
		k.fail(path, value, "is no JSON pointer (RFC 6901): "+err.Error())
	}
}

// created checks a property that only created topics have.
func (k *checker) created(path string, value, high int, create bool) {
	switch {
	case value != -1 && (value < 1 || value > high):
		k.fail(path, value, fmt.Sprintf("must be between 1 and %d, or -1 for the broker's default", high))
	case value != -1 && !create:
		k.warn(path, "has no effect without create_topic: true")
	}
}

func (k *checker) sasl(at string, c *Kafka) {
	if c.TLS != nil || c.SASL.Mechanism != "plain" {
		return
	}
	for _, b := range c.Brokers {
		if host, ok := splitHostPort(b, 1); ok && !IsLoopback(host) {
			k.warn(at+".sasl.mechanism", "plain without tls sends the password in the clear; set tls (tls: {} uses the system's roots), or use scram-sha-512")
			return
		}
	}
}
