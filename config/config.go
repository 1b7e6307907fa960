// Package config holds the configuration: plain data that is loaded strictly and validated as a
// whole. Its structs are the manual: `auditrelay config init` explains the same fields.
//
// In the YAML form any value may contain ${NAME}, an environment variable, and $${ for a
// literal ${. A secret may also be file:PATH, the content of a file without its last line
// break. A zero value stands for the default, unless the comment of a field gives it a meaning.
package config

import (
	"time"

	"github.com/auditrelay/auditrelay/config/secret"
)

// Config is the configuration of one relay.
type Config struct {
	// DataDir is the folder of the relay's state. One relay owns it at a time. It must exist or
	// be creatable, and must be on a local disk.
	DataDir string `yaml:"data_dir" check:"required"`
	// Workspace is the Workspace Management API. Without it the relay only
	// ingests and delivers: no streaming is configured and no settings watched.
	Workspace *Workspace `yaml:"workspace"`
	// Environments are those that the relay looks after, at least one.
	Environments []Environment `yaml:"environments"`
	// Ingest is the listener for pushes of the event log.
	Ingest Ingest `yaml:"ingest"`
	// Journal is where acknowledged events are kept.
	Journal Journal `yaml:"journal"`
	// Streaming watches the environments' streaming config, and corrects it.
	Streaming Streaming `yaml:"streaming"`
	// Settings watches the workspace's settings.
	Settings Settings `yaml:"settings"`
	// Policies hold the settings against rules.
	Policies Policies `yaml:"policies"`
	// Audit is the trail of changes.
	Audit Audit `yaml:"audit"`
	// Admin is the private listener: /healthz, /readyz, /metrics, /status.
	Admin Admin `yaml:"admin"`
	// Console shows the relay's state in a browser.
	Console Console `yaml:"console"`
	// Heartbeat calls a dead-man's switch.
	Heartbeat Heartbeat `yaml:"heartbeat"`
	// Traces are OpenTelemetry traces of pushes.
	Traces Traces `yaml:"traces"`
	// Log is the relay's output on standard error.
	Log Log `yaml:"log"`
	// ShutdownTimeout bounds the whole shutdown. Default 30s.
	ShutdownTimeout time.Duration `yaml:"shutdown_timeout" default:"30s" check:"positive"`
	// Sinks are the destinations, each with its own pace. There may be none; then events are
	// only kept.
	Sinks []Sink `yaml:"sinks"`
}

// Workspace says how the Workspace Management API is reached.
type Workspace struct {
	// BaseURL is the API's address, before its paths: https, except for loopback.
	BaseURL string `yaml:"base_url" check:"required"`
	// KeyID and Secret are a workspace management key.
	KeyID  string      `yaml:"key_id" check:"required"`
	Secret secret.Text `yaml:"secret" check:"required"`
	// RequestsPerSecond bounds the calls; the API's own limit is not
	// documented. Default 5.
	RequestsPerSecond float64 `yaml:"requests_per_second" default:"5" check:"0.01..1000"`
	// Timeout bounds one attempt of one call. Default 30s.
	Timeout time.Duration `yaml:"timeout" default:"30s" check:"positive"`
}

// Environment is one environment of a project.
type Environment struct {
	// Project and Environment are its slugs in the API.
	Project     string `yaml:"project"`
	Environment string `yaml:"environment"`
	// Stream is where the environment's event log is to be streamed. If it is left out, the
	// environment's streaming config is watched and recorded, and left as it is.
	Stream *Stream `yaml:"stream"`
	// Mode is enforce or observe. With observe, the relay compares the streaming config
	// with Stream, names the differences, and sets it only when a person asks for it.
	// Default enforce.
	Mode string `yaml:"mode" default:"enforce" check:"enforce|observe"`
	// Credentials are further push credentials of the environment, in addition to the one that
	// the relay generates.
	Credentials []Credential `yaml:"credentials"`
	// Quota bounds the environment's share of the relay.
	Quota Quota `yaml:"quota"`
	// SkipSettings leaves the environment out of the settings that are watched. Its streaming
	// config is then watched only if Stream is given.
	SkipSettings bool `yaml:"skip_settings"`
}

// Quota bounds one environment's share of the relay, so that a flood from one leaves room for
// the others. Pushes beyond it get 429 with Retry-After. 0 means no bound.
type Quota struct {
	// EventsPerSecond and BytesPerSecond bound the accepted events, including repeated ones, on
	// average over some ten seconds. BytesPerSecond counts the events' bodies, and what
	// cannot be decoded. Default: no bound.
	EventsPerSecond float64 `yaml:"events_per_second"`
	BytesPerSecond  Size    `yaml:"bytes_per_second"`
	// UndeliveredBytes bounds the environment's part of journal.max_bytes, as stored, until
	// every sink has its events. Default: no bound of its own. If there are several
	// environments, one may hold up to eight times the part that is free, so that a flood
	// leaves a ninth of the budget to the others.
	UndeliveredBytes Size `yaml:"undelivered_bytes"`
}

// Stream is a desired streaming config, in which exactly one of the fields is set. In YAML it
// may be the word observe instead of fields.
type Stream struct {
	// Observe means that the config is watched and recorded, and left as it is. It is the same
	// as no Stream at all, except with SkipSettings.
	Observe bool `yaml:"-"`
	// Relay points the environment at this relay, as GRAFANA_LOKI, with a generated credential
	// of which only a hash is kept.
	Relay *StreamRelay `yaml:"relay"`
	// Datadog and GrafanaLoki point it elsewhere.
	Datadog     *StreamDatadog     `yaml:"datadog"`
	GrafanaLoki *StreamGrafanaLoki `yaml:"grafana_loki"`
}

// StreamRelay points an environment at this relay.
type StreamRelay struct {
	// Hostname is the name of the ingest listener as the provider sees it: no scheme and no
	// path. A port is for tests on loopback.
	Hostname string `yaml:"hostname"`
}

// StreamDatadog is the API's datadog destination.
type StreamDatadog struct {
	// APIKey is the key of Datadog that the provider pushes with.
	APIKey secret.Text `yaml:"api_key"`
	// Site is US, US3, US5, EU, AP1 or another site known to the API.
	Site string `yaml:"site" check:"required"`
	// ApplicationKey, with the permission logs_read_data, lets the relay ask for the newest
	// event, in order to notice a stream that has fallen silent. Without it the stream's events
	// are not watched.
	ApplicationKey secret.Text `yaml:"application_key"`
	// Search finds this environment's events, and no others, such as source:idp.
	Search string `yaml:"search"`
	// SearchURL is the address of Datadog's API: https, except for loopback. Default: the
	// address of Site.
	SearchURL string `yaml:"search_url"`
}

// StreamGrafanaLoki is the API's grafana_loki destination.
type StreamGrafanaLoki struct {
	// Hostname is the Loki's host name: no scheme and no path.
	Hostname string `yaml:"hostname"`
	// Username and Password are those that the provider pushes with.
	Username string      `yaml:"username"`
	Password secret.Text `yaml:"password"`
	// Query lets the relay ask for the newest event, in order to notice a stream that has
	// fallen silent. Without it the stream's events are not watched.
	Query *LokiQuery `yaml:"query"`
}

// Credential may push: either Username and Password (Basic), or APIKey
// (Datadog's DD-API-KEY). A password or key has at least 16 bytes.
type Credential struct {
	// Username and Password are sent with each push (HTTP Basic).
	Username string      `yaml:"username"`
	Password secret.Text `yaml:"password"`
	// APIKey is sent with each push as the header DD-API-KEY, in place of Username and Password.
	APIKey secret.Text `yaml:"api_key"`
}

// Ingest is the push listener.
type Ingest struct {
	// Listen is HOST:PORT. Default 127.0.0.1:3100.
	Listen string `yaml:"listen" default:"127.0.0.1:3100"`
	// TLS is required where Listen is not loopback, unless BehindProxy is set.
	TLS *TLSServer `yaml:"tls"`
	// BehindProxy means that TLS ends at a proxy in front of the relay.
	BehindProxy bool `yaml:"behind_proxy"`
	// Anonymous, "PROJECT/ENVIRONMENT", takes pushes for this environment without a credential.
	// It is for loopback listeners only.
	Anonymous string `yaml:"anonymous"`
	// Limits bound the cost of pushes.
	Limits IngestLimits `yaml:"limits"`
	// Connections bound how many clients are connected at once.
	Connections Connections `yaml:"connections"`
}

// Connections bound how many clients are connected at once. At a bound, a new connection takes
// the place of one that has not yet shown a good credential, or else of the one that has been
// idle longest.
type Connections struct {
	// Total bounds all of them. Default: the limit of open files (ulimit -n), less those of the
	// journal and the sinks, and at most 4096.
	Total int `yaml:"total"`
	// PerAddress bounds those from one address; the IPv6 addresses of one /64 count as one.
	// Default: half of all. With BehindProxy there is no such bound, since all connections come
	// from the proxy's address.
	PerAddress int `yaml:"per_address"`
}

// IngestLimits bound the cost of pushes.
type IngestLimits struct {
	// BodyBytes bounds a body as sent. Default 10MiB.
	BodyBytes Size `yaml:"body_bytes" default:"10MiB" check:"1KiB..1GiB"`
	// DecompressedBytes bounds a body after decompression. Default 64MiB.
	DecompressedBytes Size `yaml:"decompressed_bytes" default:"64MiB" check:"1KiB..4GiB"`
	// Entries bounds the events of one push. Default 100000.
	Entries int `yaml:"entries" default:"100000" check:"1..10000000"`
	// LineBytes bounds one event's body: at most 900KiB with Journal.URL, to fit the payload of
	// an external cluster, and at most 7MiB without. If the cluster's max_payload is smaller,
	// that counts too. Default 256KiB, as in Loki.
	LineBytes Size `yaml:"line_bytes" default:"256KiB"`
	// Labels bounds the labels of one stream, and separately each entry's metadata:
	// Loki's structured metadata, Datadog's tags and attributes. More are refused with
	// 400. Default 256; at most 1024, since the journal reads back no more.
	Labels int `yaml:"labels" default:"256" check:"1..1024"`
	// LabelBytes bounds their names and values together, counted in the same way. Default
	// 64KiB; at most 256KiB.
	LabelBytes Size `yaml:"label_bytes" default:"64KiB" check:"1KiB..256KiB"`
	// Concurrent bounds the pushes that are handled at once. A further one waits, and gets 429
	// if the wait is too long. Default 256.
	Concurrent int `yaml:"concurrent" default:"256" check:"1..100000"`
	// InFlightBytes bounds the memory of all pushes together, decoded. A push beyond it
	// gets 429. Default 256MiB.
	InFlightBytes Size `yaml:"in_flight_bytes" default:"256MiB" check:"1KiB..1TiB"`
	// ReadTimeout bounds how long a client may take to send a push. Default 30s.
	ReadTimeout time.Duration `yaml:"read_timeout" default:"30s" check:"positive"`
}

// TLSServer is a certificate to serve with. The files are read again when they change.
type TLSServer struct {
	// CertFile and KeyFile are the certificate with its chain, and its key, as PEM.
	CertFile string `yaml:"cert_file" check:"required"`
	KeyFile  string `yaml:"key_file" check:"required"`
	// ClientCAFile makes the listener ask each client for a certificate (mTLS) that is signed
	// by one of the authorities in this PEM file. A credential is needed all the same.
	ClientCAFile string `yaml:"client_ca_file"`
}

// TLSClient configures the check of a peer's certificate, and the client certificate.
type TLSClient struct {
	// CAFile replaces the system's roots.
	CAFile string `yaml:"ca_file"`
	// CertFile and KeyFile are a client certificate (mTLS).
	CertFile string `yaml:"cert_file"`
	KeyFile  string `yaml:"key_file"`
	// ServerName replaces the name that is expected in the certificate.
	ServerName string `yaml:"server_name"`
}

// Journal is the durable log of events.
type Journal struct {
	// URL is an external NATS cluster with JetStream, nats://HOST:PORT[,…]. If it is left out,
	// the relay keeps its log in files under DataDir.
	URL string `yaml:"url"`
	// CredentialsFile is a NATS .creds file for URL.
	CredentialsFile string `yaml:"credentials_file"`
	// TLS is for URL.
	TLS *TLSClient `yaml:"tls"`
	// Replicas is how many copies an external cluster keeps of each stream. Default 3 with URL;
	// without it, there is one.
	Replicas int `yaml:"replicas"`
	// StreamPrefix is how the names of the relay's streams begin, for several relays on one
	// cluster. Default AUDITRELAY.
	StreamPrefix string `yaml:"stream_prefix" default:"AUDITRELAY"`
	// Shards is over how many streams the environments are spread, each with a leader of its own,
	// and MaxBytes for each. It needs URL. Once all relays of a cluster are configured with another
	// number, the environments that move are refused for a moment, and what is in the streams
	// before is delivered first. Default 1.
	Shards int `yaml:"shards" default:"1" check:"1..64"`
	// MaxBytes is the disk budget of the event log. Near its end, the oldest delivered
	// events give way. Undelivered events are never thrown away: once they alone take
	// the budget, pushes are refused with 503. Default 10GiB.
	MaxBytes Size `yaml:"max_bytes" default:"10GiB"`
	// DeadLetterBytes is the disk space for one environment's dead letters at one sink. Letters
	// beyond it are kept all the same, and no sink waits, but they count as undelivered events
	// of the environment: see Quota.UndeliveredBytes. So when the environment has used up its
	// share of MaxBytes, its own pushes are refused until letters are replayed or discarded. No
	// letter is ever thrown away to make room. Default 1GiB.
	DeadLetterBytes Size `yaml:"dead_letter_bytes" default:"1GiB"`
	// ReplayWindow is how long events are kept after every sink has them, as far as MaxBytes
	// has room. Default 72h.
	ReplayWindow time.Duration `yaml:"replay_window" default:"72h" check:"positive"`
	// DuplicateWindow is how long a repeated push of an event, with the same id and body, is
	// answered with success and not stored again. At most the newest 1,000,000 events are
	// remembered, in 26 MiB of memory. Default 10m; with a negative value everything that is
	// pushed is stored.
	DuplicateWindow time.Duration `yaml:"duplicate_window" default:"10m"`
}

// Streaming watches the streaming config.
type Streaming struct {
	// Interval between two looks. Default 60s.
	Interval time.Duration `yaml:"interval" default:"1m" check:"positive"`
	// DryRun looks and reports, and changes nothing.
	DryRun bool `yaml:"dry_run"`
	// RotationOverlap is how long a replaced credential stays valid; 0 for not at all. Default
	// 15m.
	RotationOverlap *time.Duration `yaml:"rotation_overlap" default:"15m"`
	// RotateEvery is the age at which a generated credential is replaced: at least 1h, and
	// longer than RotationOverlap; 0 for never. Default 0.
	RotateEvery time.Duration `yaml:"rotate_every"`
}

// The modes of an environment.
const (
	ModeEnforce = "enforce"
	ModeObserve = "observe"
)

// Settings watches the settings.
type Settings struct {
	// Interval is the time from one look at a setting to the next. Default 5m.
	Interval time.Duration `yaml:"interval" default:"5m" check:"positive"`
	// Intervals replace Interval for single kinds of settings, by the names in
	// [SettingKinds].
	Intervals map[string]time.Duration `yaml:"intervals"`
	// Disabled looks at no settings.
	Disabled bool `yaml:"disabled"`
}

// Admin is the private listener.
type Admin struct {
	// Listen is HOST:PORT; keep it private. Default 127.0.0.1:9100.
	Listen string `yaml:"listen" default:"127.0.0.1:9100"`
	// TLS serves HTTPS. Default: HTTP.
	TLS *TLSServer `yaml:"tls"`
	// Token, at least 16 characters, guards /metrics, /status, /tlog/ and /debug/pprof/, as
	// "Authorization: Bearer TOKEN". /healthz and /readyz answer without it; the reasons
	// on /readyz need it. Default: the token in DATA_DIR/admin.token, which the relay makes
	// at its first start and its own user can read, and /metrics needs none.
	Token secret.Text `yaml:"token"`
	// Hosts are the names by which clients may call the listener, without ports, such as the
	// service's name in a cluster. Addresses and localhost need no entry. Other names are
	// refused, since a web page can point a name of its own at the listener.
	Hosts []string `yaml:"hosts"`
	// Pprof serves profiles at /debug/pprof/; beyond loopback it needs Token.
	// Default false.
	Pprof bool `yaml:"pprof"`
}

// Heartbeat calls a dead-man's switch: a service that raises an alarm when the calls stop.
type Heartbeat struct {
	// URL is posted to as long as pushes are taken: https, except for loopback. It is kept as a
	// secret, since that is what it is with many services. Default: no calls.
	URL secret.Text `yaml:"url"`
	// Interval is the time between two calls, from 1s to 24h. Default 1m.
	Interval time.Duration `yaml:"interval" default:"1m" check:"1s..24h"`
	// TLS is for URL.
	TLS *TLSClient `yaml:"tls"`
}

// Log is the relay's output.
type Log struct {
	// Level is debug, info, warn or error. Default info.
	Level string `yaml:"level" default:"info" check:"debug|info|warn|error"`
	// Format is text or json. Default text.
	Format string `yaml:"format" default:"text" check:"text|json"`
}
