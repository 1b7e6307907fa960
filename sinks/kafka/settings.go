package kafka

import (
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/sasl"
	"github.com/segmentio/kafka-go/sasl/plain"
	"github.com/segmentio/kafka-go/sasl/scram"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/json/jsonpointer"
	"github.com/auditrelay/auditrelay/relay"
	"github.com/auditrelay/auditrelay/sinks/template"
)

const defaultTopic = "auditrelay.events"

// configure reads all of cfg but what the transport takes.
func (s *Sink) configure(cfg config.Kafka) (err error) {
	if len(cfg.Brokers) == 0 {
		return errors.New("brokers: at least one HOST:PORT is needed")
	}
	for _, b := range cfg.Brokers {
		if _, _, err := net.SplitHostPort(b); err != nil {
			return fmt.Errorf("brokers: %q is not HOST:PORT: %w", b, err)
		}
	}
	s.brokers = cfg.Brokers
	if cfg.Topic == "" {
		cfg.Topic = defaultTopic
	}
	if s.topic, err = template.Parse(cfg.Topic); err != nil {
		return fmt.Errorf("topic: %w", err)
	}
	if s.topic.Constant() && !validTopic(cfg.Topic) {
		return fmt.Errorf("topic: %q: %w", cfg.Topic, errTopicName)
	}
	if s.form, err = formOf(cfg); err != nil {
		return err
	}
	if s.spread.balancer, err = balancerNamed(cfg.Partitioner); err != nil {
		return err
	}
	if s.compression, err = compressionNamed(cfg.Compression); err != nil {
		return err
	}
	if cfg.CreateTopic {
		s.create = &kafka.TopicConfig{
			NumPartitions:     orBrokersDefault(cfg.Partitions),
			ReplicationFactor: orBrokersDefault(cfg.ReplicationFactor),
		}
	}
	return nil
}

func formOf(cfg config.Kafka) (form, error) {
	key, err := keyNamed(cfg.Key)
	if err != nil {
		return form{}, err
	}
	switch cfg.Mode {
	case "", "binary":
		return form{key: key}, nil
	case "structured":
		return form{key: key, structured: true}, nil
	}
	return form{}, fmt.Errorf("mode: %q is not one of binary, structured", cfg.Mode)
}

func orBrokersDefault(n int) int {
	if n <= 0 {
		return -1
	}
	return n
}

// keyFunc appends the key of e to dst. It returns nil where e has none, which
// is something else than an empty key.
type keyFunc func(dst []byte, e *relay.Event) []byte

func keyNamed(name string) (keyFunc, error) {
	switch name {
	case "", "environment":
		return environmentKey, nil
	case "subject":
		return func(dst []byte, e *relay.Event) []byte { return unlessEmpty(dst, e.Subject) }, nil
	case "id":
		return func(dst []byte, e *relay.Event) []byte { return unlessEmpty(dst, e.ID) }, nil
	case "none":
		return func([]byte, *relay.Event) []byte { return nil }, nil
	}
	if !strings.HasPrefix(name, "/") {
		return nil, fmt.Errorf("key: %q is not one of environment, subject, id, none, and no JSON pointer such as /user/id", name)
	}
	pointer, err := jsonpointer.Parse(name)
	if err != nil {
		return nil, fmt.Errorf("key: %q: %w", name, err)
	}
	return bodyKey(pointer), nil
}

// bodyKey is the text of the value that pointer names in the body. A value that
// is empty, or null, an object or an array, is no key.
func bodyKey(pointer jsonpointer.Pointer) keyFunc {
	return func(dst []byte, e *relay.Event) []byte {
		raw, ok := pointer.Find(e.Body)
		if !ok {
			return nil
		}
		key, ok := jsonpointer.AppendText(dst, raw)
		if !ok || len(key) == len(dst) {
			return nil
		}
		return key
	}
}

// environmentKey is "project/environment", or "project" for what concerns a
// whole project.
func environmentKey(dst []byte, e *relay.Event) []byte {
	if e.Environment == "" {
		return unlessEmpty(dst, e.Project)
	}
	dst = append(dst, e.Project...)
	dst = append(dst, '/')
	return append(dst, e.Environment...)
}

func unlessEmpty(dst []byte, s string) []byte {
	if s == "" {
		return nil
	}
	return append(dst, s...)
}

func balancerNamed(name string) (kafka.Balancer, error) {
	switch name {
	case "", "murmur2":
		return kafka.Murmur2Balancer{}, nil
	case "crc32":
		return kafka.CRC32Balancer{}, nil
	case "round-robin":
		return nil, nil
	}
	return nil, fmt.Errorf("partitioner: %q is not one of murmur2, crc32, round-robin", name)
}

func compressionNamed(name string) (kafka.Compression, error) {
	switch name {
	case "", "snappy":
		return kafka.Snappy, nil
	case "zstd":
		return kafka.Zstd, nil
	case "lz4":
		return kafka.Lz4, nil
	case "gzip":
		return kafka.Gzip, nil
	case "none":
		return 0, nil
	}
	return 0, fmt.Errorf("compression: %q is not one of zstd, lz4, snappy, gzip, none", name)
}

// mechanism returns nil where cfg is nil.
func mechanism(cfg *config.KafkaSASL) (sasl.Mechanism, error) {
	if cfg == nil {
		return nil, nil
	}
	user, password := cfg.Username, cfg.Password.Reveal()
	switch cfg.Mechanism {
	case "plain":
		return plain.Mechanism{Username: user, Password: password}, nil
	case "scram-sha-256":
		return scramMechanism(scram.SHA256, user, password)
	case "scram-sha-512":
		return scramMechanism(scram.SHA512, user, password)
	}
	return nil, fmt.Errorf("sasl.mechanism: %q is not one of plain, scram-sha-256, scram-sha-512", cfg.Mechanism)
}

// scramMechanism does not pass on why a pair cannot be used: the library's
// error may quote it.
func scramMechanism(a scram.Algorithm, user, password string) (sasl.Mechanism, error) {
	m, err := scram.Mechanism(a, user, password)
	if err != nil {
		return nil, errors.New("sasl: username or password holds characters that SCRAM forbids (RFC 4013)")
	}
	return m, nil
}
