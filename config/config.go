// Package config holds the configuration: plain data, loaded strictly and
// validated whole. Its structs are the manual: the comments here are what
// `auditrelay config init` explains.
//
// In the YAML form any value may hold ${NAME}, an environment variable, and
// $${ for a literal ${. A secret may also be file:PATH, the content of a file
// without its last line break. A zero value stands for the default, except where a
// field says what it means.
package config

import (
	"time"

	"github.com/auditrelay/auditrelay/config/secret"
)

// Config is one relay.
type Config struct {
	// DataDir is the folder that the relay keeps its state in. One relay owns
	// it at a time. It must exist or be creatable, and be on a local disk.
	DataDir string `yaml:"data_dir"`
	// Workspace is the Workspace Management API. Without it the relay only
	// ingests and delivers: no streaming is configured and no settings watched.
	Workspace *Workspace `yaml:"workspace"`
	// Environments are what the relay looks after, at least one.
	Environments []Environment `yaml:"environments"`
	// Ingest is the listener that the event log is pushed to.
	Ingest Ingest `yaml:"ingest"`
	// Journal is where acknowledged events are kept.
	Journal Journal `yaml:"journal"`
	// Streaming watches and mends the environments' streaming config.
	Streaming Streaming `yaml:"streaming"`
	// Settings watches the workspace's settings.
	Settings Settings `yaml:"settings"`
	// Audit is the trail of changes.
	Audit Audit `yaml:"audit"`
	// Admin is the private listener: /healthz, /readyz, /metrics, /status.
	Admin Admin `yaml:"admin"`
	// Log is what the relay prints on standard error.
	Log Log `yaml:"log"`
	// ShutdownTimeout bounds the whole shutdown. Default 30s.
	ShutdownTimeout time.Duration `yaml:"shutdown_timeout"`
	// Sinks are the destinations, each with its own pace. None is allowed:
	// events are then only kept.
	Sinks []Sink `yaml:"sinks"`
}

// Workspace says how the Workspace Management API is reached.
type Workspace struct {
	// BaseURL is the address that the API's paths are appended to. https,
	// but for loopback.
	BaseURL string `yaml:"base_url"`
	// KeyID and Secret are a workspace management key.
	KeyID  string      `yaml:"key_id"`
	Secret secret.Text `yaml:"secret"`
	// RequestsPerSecond bounds the calls; the API's own limit is not
	// documented. Default 5.
	RequestsPerSecond float64 `yaml:"requests_per_second"`
	// Timeout bounds one attempt of one call. Default 30s.
	Timeout time.Duration `yaml:"timeout"`
	// RBACPrefix is the prefix of the four RBAC policy fields that carry the
	// maker's brand on the wire. Default "service".
	RBACPrefix string `yaml:"rbac_prefix"`
}

// Environment is one environment of a project.
type Environment struct {
	// Project and Environment are the slugs that the API addresses it by.
	Project     string `yaml:"project"`
	Environment string `yaml:"environment"`
	// Stream is where the environment's event log is to be streamed. Left out,
	// its streaming config is left as it is.
	Stream *Stream `yaml:"stream"`
	// Credentials are further credentials that may push to the environment,
	// beside the one that the relay generates for it.
	Credentials []Credential `yaml:"credentials"`
	// Quota bounds what the environment may take of the relay.
	Quota Quota `yaml:"quota"`
	// SkipSettings leaves the environment out of the settings' snapshots.
	SkipSettings bool `yaml:"skip_settings"`
}

// Quota bounds what one environment may take of the relay, so that a flood of
// one leaves room for the others. Beyond it, its pushes get 429 with Retry-After.
// 0 is no bound.
type Quota struct {
	// EventsPerSecond and BytesPerSecond bound what is taken, on average over
	// some ten seconds. BytesPerSecond counts the events' bodies. Default: no bound.
	EventsPerSecond float64 `yaml:"events_per_second"`
	BytesPerSecond  Size    `yaml:"bytes_per_second"`
	// UndeliveredBytes bounds the part of journal.max_bytes that the environment's
	// events take, as stored, until every sink has them. Default: no bound of its
	// own. With several environments, one may hold up to eight times what is
	// free: so one that floods leaves a ninth of the budget to the others.
	UndeliveredBytes Size `yaml:"undelivered_bytes"`
}

// Stream is a desired streaming config: exactly one of the fields is set.
type Stream struct {
	// Relay points the environment at this relay, as GRAFANA_LOKI, with a
	// credential that the relay generates and keeps only as a hash.
	Relay *StreamRelay `yaml:"relay"`
	// Datadog and GrafanaLoki point it elsewhere.
	Datadog     *StreamDatadog     `yaml:"datadog"`
	GrafanaLoki *StreamGrafanaLoki `yaml:"grafana_loki"`
}

// StreamRelay points an environment at this relay.
type StreamRelay struct {
	// Hostname is the name that the provider reaches the ingest listener by:
	// no scheme and no path. A port is for tests on loopback.
	Hostname string `yaml:"hostname"`
}

// StreamDatadog is the API's datadog destination.
type StreamDatadog struct {
	APIKey secret.Text `yaml:"api_key"`
	// Site is US, US3, US5, EU, AP1 or another that the API takes.
	Site string `yaml:"site"`
}

// StreamGrafanaLoki is the API's grafana_loki destination.
type StreamGrafanaLoki struct {
	Hostname string      `yaml:"hostname"`
	Username string      `yaml:"username"`
	Password secret.Text `yaml:"password"`
}

// Credential may push: either Username and Password (Basic), or APIKey
// (Datadog's DD-API-KEY). A password or key has at least 16 bytes.
type Credential struct {
	Username string      `yaml:"username"`
	Password secret.Text `yaml:"password"`
	APIKey   secret.Text `yaml:"api_key"`
}

// Ingest is the push listener.
type Ingest struct {
	// Listen is HOST:PORT. Default 127.0.0.1:3100.
	Listen string `yaml:"listen"`
	// TLS is required where Listen is not loopback, unless BehindProxy is set.
	TLS *TLSServer `yaml:"tls"`
	// BehindProxy says that TLS ends at a proxy in front of the relay.
	BehindProxy bool `yaml:"behind_proxy"`
	// Anonymous, "PROJECT/ENVIRONMENT", takes pushes without a credential for
	// that environment. Loopback listeners only.
	Anonymous string `yaml:"anonymous"`
	// Limits bound what one push may cost.
	Limits IngestLimits `yaml:"limits"`
	// Connections bound how many clients are connected at once.
	Connections Connections `yaml:"connections"`
}

// Connections bound how many clients are connected at once. Where a bound is
// reached, a new connection takes the place of one that has shown no good
// credential, or of the one that has been idle longest.
type Connections struct {
	// Total bounds all of them. Default: what the limit of open files (ulimit -n)
	// leaves beside the journal and the sinks, at most 4096.
	Total int `yaml:"total"`
	// PerAddress bounds those from one address; the IPv6 addresses of one /64 count
	// as one. Default: half of all. With BehindProxy there is no such bound, as all
	// come from the proxy's address.
	PerAddress int `yaml:"per_address"`
}

// IngestLimits bound what one push may cost.
type IngestLimits struct {
	// BodyBytes bounds a body as sent. Default 10MiB.
	BodyBytes Size `yaml:"body_bytes"`
	// DecompressedBytes bounds a body after decompression. Default 64MiB.
	DecompressedBytes Size `yaml:"decompressed_bytes"`
	// Entries bounds the events of one push. Default 100000.
	Entries int `yaml:"entries"`
	// LineBytes bounds one event's body: at most 900KiB where Journal.URL is
	// set, so that it fits an external cluster's payload, else 7MiB. Where that
	// cluster's max_payload is less than usual, it counts. Default 256KiB, as
	// Loki's.
	LineBytes Size `yaml:"line_bytes"`
	// Labels bounds the labels of one stream, and, by themselves, what each
	// entry brings beside its body: Loki's structured metadata, Datadog's tags
	// and attributes. What has more is refused with 400. Default 256; at most 1024.
	Labels int `yaml:"labels"`
	// LabelBytes bounds their names and values together, counted the same way.
	// Default 64KiB; at most 256KiB.
	LabelBytes Size `yaml:"label_bytes"`
	// Concurrent bounds the pushes handled at once; a further one waits, and
	// gets 429 where the wait is too long. Default 256.
	Concurrent int `yaml:"concurrent"`
	// InFlightBytes bounds the memory that pushes hold together, with all that is
	// made of them. A push that would exceed it gets 429. Default 256MiB.
	InFlightBytes Size `yaml:"in_flight_bytes"`
	// ReadTimeout bounds how long a client may take to send a push. Default 30s.
	ReadTimeout time.Duration `yaml:"read_timeout"`
}

// TLSServer is a certificate to serve with. The files are read again when they change.
type TLSServer struct {
	CertFile string `yaml:"cert_file"`
	KeyFile  string `yaml:"key_file"`
	// ClientCAFile has the listener ask each client for a certificate (mTLS) that one of
	// the authorities in this PEM file has signed. A credential is needed all the same.
	ClientCAFile string `yaml:"client_ca_file"`
}

// TLSClient says how a peer's certificate is checked, and what is shown to it.
type TLSClient struct {
	// CAFile replaces the system's roots.
	CAFile string `yaml:"ca_file"`
	// CertFile and KeyFile are a client certificate (mTLS).
	CertFile string `yaml:"cert_file"`
	KeyFile  string `yaml:"key_file"`
	// ServerName replaces the name that is checked.
	ServerName string `yaml:"server_name"`
}

// Journal is the durable log of events.
type Journal struct {
	// URL is an external NATS cluster with JetStream, nats://HOST:PORT[,…].
	// Left out, a server is embedded, and keeps its files under DataDir.
	URL string `yaml:"url"`
	// CredentialsFile is a NATS .creds file for URL.
	CredentialsFile string `yaml:"credentials_file"`
	// TLS is for URL.
	TLS *TLSClient `yaml:"tls"`
	// Replicas of the streams on an external cluster. Default 3; 1 when embedded.
	Replicas int `yaml:"replicas"`
	// StreamPrefix begins the names of the relay's streams, so that several
	// relays can share a cluster. Default AUDITRELAY.
	StreamPrefix string `yaml:"stream_prefix"`
	// MaxBytes is the disk budget of the event log. As it nears its end, the
	// oldest events that every sink has give way. What a sink has not had is
	// never thrown away: once that alone takes the budget, pushes are refused with
	// 503. Default 10GiB.
	MaxBytes Size `yaml:"max_bytes"`
	// DeadLetterBytes is how much disk the dead letters of each sink may take. When
	// that is spent, the sink's delivery waits, and what it is owed stays in the event
	// log, until letters are replayed or discarded. Other sinks and pushes go on; no
	// letter is ever thrown away for room. Default 1GiB.
	DeadLetterBytes Size `yaml:"dead_letter_bytes"`
	// ReplayWindow is how long events are kept after every sink has them, as far
	// as there is room in MaxBytes. Default 72h.
	ReplayWindow time.Duration `yaml:"replay_window"`
	// DuplicateWindow is how long an event that is pushed again, with the same
	// id and body, is recognised, and answered with success without being
	// stored again. At most the newest 1,000,000 events are known, in 26 MiB of memory.
	// Default 10m; a negative value stores whatever is pushed.
	DuplicateWindow time.Duration `yaml:"duplicate_window"`
}

// Streaming watches the streaming config.
type Streaming struct {
	// Interval between two looks. Default 60s.
	Interval time.Duration `yaml:"interval"`
	// DryRun looks and reports, and changes nothing.
	DryRun bool `yaml:"dry_run"`
	// RotationOverlap is how long a replaced credential is still accepted; 0 is not
	// at all. Default 15m.
	RotationOverlap *time.Duration `yaml:"rotation_overlap"`
}

// Settings watches the settings.
type Settings struct {
	// Interval between two snapshots. Default 5m.
	Interval time.Duration `yaml:"interval"`
	// Disabled takes no snapshots.
	Disabled bool `yaml:"disabled"`
}

// Audit is the trail of changes.
type Audit struct {
	// Origin names the trail in its signed checkpoints, as a domain and path
	// that you own (C2SP tlog-checkpoint). It goes into the key that is generated,
	// and from then on the key's own counts. Default auditrelay.local/HOSTNAME.
	Origin string `yaml:"origin"`
	// KeyFile holds the checkpoint signing key (golang.org/x/mod/sumdb/note
	// form). Default DATA_DIR/audit.key, generated at the first start.
	KeyFile string `yaml:"key_file"`
}

// Admin is the private listener.
type Admin struct {
	// Listen is HOST:PORT; keep it private. Default 127.0.0.1:9100.
	Listen string `yaml:"listen"`
	// TLS serves HTTPS. Default: HTTP.
	TLS *TLSServer `yaml:"tls"`
	// Token, at least 16 characters, is what /metrics, /status and /debug/pprof/
	// ask for, as "Authorization: Bearer TOKEN". /healthz and /readyz answer
	// without it. Default: nothing is asked for.
	Token secret.Text `yaml:"token"`
	// Pprof serves profiles at /debug/pprof/; beyond loopback it needs Token.
	// Default false.
	Pprof bool `yaml:"pprof"`
}

// Log is what the relay prints.
type Log struct {
	// Level is debug, info, warn or error. Default info.
	Level string `yaml:"level"`
	// Format is text or json. Default text.
	Format string `yaml:"format"`
}

// Size is a number of bytes; in YAML a whole number, alone or with kB, MB, GB,
// TB, KiB, MiB, GiB or TiB.
type Size int64
