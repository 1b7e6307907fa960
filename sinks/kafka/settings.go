package kafka

import (
	"errors"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/sasl"
	"github.com/segmentio/kafka-go/sasl/plain"
	"github.com/segmentio/kafka-go/sasl/scram"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/jsontext"
	"github.com/auditrelay/auditrelay/relay"
)

// configure reads cfg, except for what the transport needs.
func (s *Sink) configure(cfg config.Kafka) {
	s.brokers = cfg.Brokers
	s.topic = relay.ParseTemplate(cfg.Topic)
	s.form = form{key: keyNamed(cfg.Key), mode: modeNamed(cfg.Mode)}
	s.spread.balancer = balancerNamed(cfg.Partitioner)
	s.compression = compressionNamed(cfg.Compression)
	if cfg.CreateTopic {
		s.create = &kafka.TopicConfig{NumPartitions: cfg.Partitions, ReplicationFactor: cfg.ReplicationFactor}
	}
}

// keyFunc appends the key of e to dst. It returns nil for no key, which is different from an
// empty key.
type keyFunc func(dst []byte, e *relay.Event) []byte

func keyNamed(name string) keyFunc {
	switch name {
	case "environment":
		return environmentKey
	case "subject":
		return func(dst []byte, e *relay.Event) []byte { return unlessEmpty(dst, e.Subject) }
	case "id":
		return func(dst []byte, e *relay.Event) []byte { return unlessEmpty(dst, e.ID) }
	case "none":
		return func([]byte, *relay.Event) []byte { return nil }
	}
	pointer, _ := jsontext.ParsePointer(name) // the configuration has checked it
	return bodyKey(pointer)
}

// bodyKey is the text of the value that the pointer finds in the body. An empty value, null, an
// object or an array is no key.
func bodyKey(pointer jsontext.Pointer) keyFunc {
	return func(dst []byte, e *relay.Event) []byte {
		raw, ok := pointer.Find(e.Body)
		if !ok {
			return nil
		}
		key, ok := jsontext.AppendValue(dst, raw)
		if !ok || len(key) == len(dst) {
			return nil
		}
		return key
	}
}

// environmentKey is "project/environment", or "project" for a whole project's event.
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

func balancerNamed(name string) kafka.Balancer {
	switch name {
	case "murmur2":
		return kafka.Murmur2Balancer{}
	case "crc32":
		return kafka.CRC32Balancer{}
	}
	return nil // round-robin
}

func compressionNamed(name string) kafka.Compression {
	return map[string]kafka.Compression{"snappy": kafka.Snappy, "zstd": kafka.Zstd, "lz4": kafka.Lz4, "gzip": kafka.Gzip}[name]
}

func modeNamed(name string) mode {
	return map[string]mode{"structured": structuredMode, "batch": batchMode}[name]
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
	default:
		return scramMechanism(scram.SHA512, user, password)
	}
}

// scramMechanism does not pass on why a user and password cannot be used, since the library's
// error may quote them.
func scramMechanism(a scram.Algorithm, user, password string) (sasl.Mechanism, error) {
	m, err := scram.Mechanism(a, user, password)
	if err != nil {
		return nil, errors.New("sasl: username or password holds characters that SCRAM forbids (RFC 4013)")
	}
	return m, nil
}
