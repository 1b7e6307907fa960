package config

import (
	"time"

	"github.com/auditrelay/auditrelay/config/secret"
)

// Sink is one destination: a name, and exactly one of the destinations.
type Sink struct {
	// Name is unique, and stays: the sink's position in the journal goes by
	// it. Letters, digits, "-" and "_".
	Name string `yaml:"name"`
	// BatchEvents and BatchBytes bound one delivery. Defaults 5000 and 4MiB; 100
	// and 512KiB for a webhook.
	BatchEvents int  `yaml:"batch_events"`
	BatchBytes  Size `yaml:"batch_bytes"`
	// Timeout bounds one attempt of one delivery. Default 30s.
	Timeout time.Duration `yaml:"timeout"`

	// Match chooses what the sink gets. Left out, it gets everything.
	Match *Match `yaml:"match"`
	// Redact takes fields out of the bodies before this sink sees them; the
	// journal keeps the events as they came.
	Redact *Redact `yaml:"redact"`
	// Parallel is how many deliveries may be under way at once, at most 64. 1,
	// the default, keeps each environment's order; more are faster where the
	// destination is far away, and give that order up. Each has connections of
	// its own. A file takes 1 only.
	Parallel int `yaml:"parallel"`

	Kafka   *Kafka   `yaml:"kafka"`
	NATS    *NATS    `yaml:"nats"`
	Loki    *Loki    `yaml:"loki"`
	Datadog *Datadog `yaml:"datadog"`
	Webhook *Webhook `yaml:"webhook"`
	File    *File    `yaml:"file"`
}

// Kafka delivers to Kafka.
type Kafka struct {
	// Brokers are HOST:PORT, at least one.
	Brokers []string `yaml:"brokers"`
	// Topic may hold {type}, {project} and {environment}. Default auditrelay.events.
	Topic string `yaml:"topic"`
	// Key is what a record is partitioned by: environment (default), subject,
	// id, none (round-robin), or a JSON pointer into the body (RFC 6901), such
	// as /user/id. The key is the value's text: a string unescaped, a number,
	// true or false as written. A body without that value, or with one that is
	// empty, null, an object or an array, has no key, and goes round-robin.
	Key string `yaml:"key"`
	// Partitioner is murmur2 (as Java's, the default), crc32 (as librdkafka's)
	// or round-robin.
	Partitioner string `yaml:"partitioner"`
	// Compression is zstd, lz4, snappy (default), gzip or none.
	Compression string `yaml:"compression"`
	// Mode is how CloudEvents are carried: binary (attributes as headers, the
	// body untouched, the default) or structured (one JSON object, with the
	// header content-type: application/cloudevents+json).
	Mode string `yaml:"mode"`
	// CreateTopic makes a topic that does not exist, with Partitions and
	// ReplicationFactor (default -1: as the broker has it).
	CreateTopic       bool       `yaml:"create_topic"`
	Partitions        int        `yaml:"partitions"`
	ReplicationFactor int        `yaml:"replication_factor"`
	TLS               *TLSClient `yaml:"tls"`
	SASL              *KafkaSASL `yaml:"sasl"`
}

// KafkaSASL authenticates to Kafka.
type KafkaSASL struct {
	// Mechanism is plain, scram-sha-256 or scram-sha-512.
	Mechanism string      `yaml:"mechanism"`
	Username  string      `yaml:"username"`
	Password  secret.Text `yaml:"password"`
}

// NATS delivers to NATS.
type NATS struct {
	// URL is nats://HOST:PORT, several joined with commas.
	URL string `yaml:"url"`
	// Subject may hold {type}, {project} and {environment}, each as one token
	// with what a token may not hold escaped. Default auditrelay.{project}.{environment}.{type}.
	Subject string `yaml:"subject"`
	// Mode is jetstream (acknowledged, the default) or core (at most once:
	// NATS does not acknowledge, and what nobody is subscribed to is gone).
	Mode string `yaml:"mode"`
	// CreateStream, a name, makes that stream over Subject's space where it is
	// missing.
	CreateStream string `yaml:"create_stream"`
	// CredentialsFile is a .creds file; NKeyFile a seed file; Token a token;
	// Username and Password a pair. At most one of the four.
	CredentialsFile string      `yaml:"credentials_file"`
	NKeyFile        string      `yaml:"nkey_file"`
	Token           secret.Text `yaml:"token"`
	Username        string      `yaml:"username"`
	Password        secret.Text `yaml:"password"`
	TLS             *TLSClient  `yaml:"tls"`
}

// File writes JSON lines, one CloudEvents JSON object each.
type File struct {
	// Path is the file that is written; rotated ones stand beside it.
	Path string `yaml:"path"`
	// RotateBytes and RotateEvery start a new file. Defaults 128MiB and 24h;
	// 0 uses the default, a negative value never rotates.
	RotateBytes Size          `yaml:"rotate_bytes"`
	RotateEvery time.Duration `yaml:"rotate_every"`
	// Keep is how many rotated files are kept. Default 0: all.
	Keep int `yaml:"keep"`
	// Gzip compresses a file when it is rotated, and names it .gz.
	Gzip bool `yaml:"gzip"`
	// NoSync acknowledges before the file is synced to disk.
	NoSync bool `yaml:"no_sync"`
}
