package config

import (
	"fmt"
	"net/url"
	"path/filepath"
	"slices"
	"strings"

	"github.com/auditrelay/auditrelay/internal/json/jsonpointer"
)

// placeholders are what a topic or a subject may hold.
func placeholders() []string { return []string{"type", "project", "environment"} }

func (k *checker) sinks(c *Config) {
	names, files := map[string]string{}, map[string]string{}
	for i, s := range c.Sinks {
		at := fmt.Sprintf("sinks[%d]", i)
		if k.name(at+".name", s.Name) {
			if before, twice := names[s.Name]; twice {
				k.fail(at+".name", s.Name, "is the name of "+before+" already; a sink's name must be its own")
			}
			names[s.Name] = at
		}
		between(k, at+".batch_events", s.BatchEvents, 1, 1_000_000)
		between(k, at+".batch_bytes", s.BatchBytes, 1<<10, 1<<30)
		k.positive(at+".timeout", s.Timeout)
		between(k, at+".parallel", s.Parallel, 1, 64)
		if s.Match != nil {
			k.match(at+".match", s.Match)
			k.matchNames(at+".match", s.Match, c.Environments)
		}
		if s.Redact != nil {
			k.redact(at+".redact", s.Redact)
			if s.Kafka != nil {
				k.redactedKey(at+".kafka.key", s.Kafka.Key, s.Redact)
			}
		}
		k.destination(at, s)
		if s.File != nil && s.Parallel > 1 {
			k.fail(at+".parallel", s.Parallel, "must be 1 with file: a file has one writer")
		}
		if s.File == nil || s.File.Path == "" {
			continue
		}
		path := filepath.Clean(s.File.Path)
		if before, twice := files[path]; twice {
			k.fail(at+".file.path", s.File.Path, "is written by "+before+" already; give each sink a file of its own")
		}
		files[path] = at
	}
}

func (k *checker) destination(at string, s Sink) {
	count := 0
	if s.Kafka != nil {
		count++
		k.kafka(at+".kafka", s.Kafka)
	}
	if s.NATS != nil {
		count++
		k.nats(at+".nats", s.NATS)
	}
	if s.Loki != nil {
		count++
		k.loki(at+".loki", s.Loki)
	}
	if s.Datadog != nil {
		count++
		k.datadog(at+".datadog", s.Datadog)
	}
	if s.Webhook != nil {
		count++
		k.webhook(at+".webhook", s.Webhook)
	}
	if s.File != nil {
		count++
		k.file(at+".file", s.File)
	}
	if count != 1 {
		k.fail(at, nil, "must have exactly one destination: kafka, nats, loki, datadog, webhook or file; make a sink of each")
	}
}

func (k *checker) kafka(at string, c *Kafka) {
	if len(c.Brokers) == 0 {
		k.fail(at+".brokers", nil, "is required: at least one HOST:PORT")
	}
	for i, b := range c.Brokers {
		if host, ok := splitHostPort(b, 1); !ok || !isHost(host) {
			k.fail(fmt.Sprintf("%s.brokers[%d]", at, i), b, "must be HOST:PORT, such as kafka-1.example.com:9092")
		}
	}
	plain := func(r rune) bool { return isWord(r) || strings.ContainsRune(".{}", r) }
	if k.template(at+".topic", c.Topic, placeholders()...) && (len(c.Topic) > 249 || !all(c.Topic, plain)) {
		k.fail(at+".topic", c.Topic, `must be at most 249 letters, digits, ".", "-" and "_", and placeholders`)
	}
	k.kafkaKey(at+".key", c.Key)
	k.oneOf(at+".mode", c.Mode, "binary", "structured")
	k.oneOf(at+".partitioner", c.Partitioner, "murmur2", "crc32", "round-robin")
	k.oneOf(at+".compression", c.Compression, "zstd", "lz4", "snappy", "gzip", "none")
	k.created(at+".partitions", c.Partitions, 100_000, c.CreateTopic)
	k.created(at+".replication_factor", c.ReplicationFactor, 100, c.CreateTopic)
	k.tlsClient(at+".tls", c.TLS)
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
	if _, err := jsonpointer.Parse(value); err != nil {
		k.fail(path, value, "is no JSON pointer (RFC 6901): "+err.Error())
	}
}

// created checks a property that only a topic that is created has.
func (k *checker) created(path string, value, high int, create bool) {
	switch {
	case value != -1 && (value < 1 || value > high):
		k.fail(path, value, fmt.Sprintf("must be between 1 and %d, or -1 for the broker's default", high))
	case value != -1 && !create:
		k.warn(path, "has no effect without create_topic: true")
	}
}

func (k *checker) sasl(at string, c *Kafka) {
	k.oneOf(at+".sasl.mechanism", c.SASL.Mechanism, "plain", "scram-sha-256", "scram-sha-512")
	k.required(at+".sasl.username", c.SASL.Username)
	k.secret(at+".sasl.password", c.SASL.Password)
	if c.TLS != nil || c.SASL.Mechanism != "plain" {
		return
	}
	for _, b := range c.Brokers {
		if host, ok := splitHostPort(b, 1); ok && !isLoopback(host) {
			k.warn(at+".sasl.mechanism", "plain without tls sends the password in the clear; set tls (tls: {} uses the system's roots), or use scram-sha-512")
			return
		}
	}
}

func (k *checker) nats(at string, c *NATS) {
	if k.required(at+".url", c.URL) {
		k.natsURLs(at+".url", c.URL)
	}
	if k.template(at+".subject", c.Subject, placeholders()...) && !isSubject(c.Subject) {
		k.fail(at+".subject", c.Subject, `must be tokens joined with ".": none empty, no spaces, no "*" and ">"`)
	}
	k.oneOf(at+".mode", c.Mode, "jetstream", "core")
	if c.CreateStream != "" {
		k.name(at+".create_stream", c.CreateStream)
		if c.Mode == "core" {
			k.fail(at+".create_stream", c.CreateStream, "needs mode: jetstream")
		}
	}
	k.natsCredentials(at, c)
	if (!c.Token.Empty() || !c.Password.Empty()) && c.TLS == nil && inTheClear(c.URL) {
		k.warn(at+".url", "the password or token goes over the network in the clear; write tls:// (or set tls), or use credentials_file or nkey_file")
	}
	k.tlsClient(at+".tls", c.TLS)
}

func isSubject(s string) bool {
	for token := range strings.SplitSeq(s, ".") {
		if token == "" || strings.ContainsAny(token, " \t\r\n*>") {
			return false
		}
	}
	return true
}

// inTheClear reports whether one of the addresses is reached over a network
// without TLS.
func inTheClear(addresses string) bool {
	for address := range strings.SplitSeq(addresses, ",") {
		u, err := url.Parse(strings.TrimSpace(address))
		if err == nil && (u.Scheme == "nats" || u.Scheme == "ws") && !isLoopback(u.Hostname()) {
			return true
		}
	}
	return false
}

func (k *checker) natsCredentials(at string, c *NATS) {
	pair := c.Username != "" || !c.Password.Empty()
	count := 0
	for _, given := range []bool{c.CredentialsFile != "", c.NKeyFile != "", !c.Token.Empty(), pair} {
		if given {
			count++
		}
	}
	if count > 1 {
		k.fail(at, nil, "must have at most one of credentials_file, nkey_file, token, and username with password")
	}
	if pair {
		k.required(at+".username", c.Username)
		k.secret(at+".password", c.Password)
	}
}

func (k *checker) file(at string, c *File) {
	k.required(at+".path", c.Path)
	if c.RotateBytes > 0 && c.RotateBytes < 1<<10 {
		k.fail(at+".rotate_bytes", c.RotateBytes, "must be at least 1KiB, or negative for never")
	}
	if c.Keep < 0 {
		k.fail(at+".keep", c.Keep, "must not be negative; 0 keeps all")
	}
}
