package config

import (
	"fmt"
	"slices"
	"strings"

	"github.com/auditrelay/auditrelay/config/secret"
	"github.com/auditrelay/auditrelay/internal/json/jsonscan"
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
	// CreateTopic makes a topic that is missing, with Partitions and ReplicationFactor (default
	// -1: as the broker has it).
	CreateTopic       bool       `yaml:"create_topic"`
	Partitions        int        `yaml:"partitions" default:"-1"`
	ReplicationFactor int        `yaml:"replication_factor" default:"-1"`
	TLS               *TLSClient `yaml:"tls"`
	SASL              *KafkaSASL `yaml:"sasl"`
}

// KafkaSASL authenticates to Kafka.
type KafkaSASL struct {
	// Mechanism is plain, scram-sha-256 or scram-sha-512.
	Mechanism string      `yaml:"mechanism" check:"plain|scram-sha-256|scram-sha-512"`
	Username  string      `yaml:"username" check:"required"`
	Password  secret.Text `yaml:"password"`
}

func (c *Kafka) check(k *checker, at string, s *Sink) {
	if len(c.Brokers) == 0 {
		k.fail(at+".brokers", nil, "is required: at least one HOST:PORT")
	}
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
	if c.Mode == "batch" && c.Key == "id" {
		k.warn(at+".mode", "has no effect with key: id: a record holds events of one key, so each event has its own")
	}
	if (c.Mode == "structured" || c.Mode == "batch") && s.Format == FormatOCSF {
		k.fail(at+".mode", c.Mode, "would put each OCSF object into an envelope of CloudEvents; use binary, whose value is the object alone")
	}
	k.created(at+".partitions", c.Partitions, 100_000, c.CreateTopic)
	k.created(at+".replication_factor", c.ReplicationFactor, 100, c.CreateTopic)
	if c.SASL != nil {
		k.sasl(at, c)
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
	if _, err := jsonscan.ParsePointer(value); err != nil {
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
	k.secret(at+".sasl.password", c.SASL.Password)
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
