package config

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/config/secret"
)

// environment returns a lookup of variables in vars.
func environment(vars map[string]string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		value, ok := vars[name]
		return value, ok
	}
}

// minimal is a configuration that has no warning if KEY is set.
const minimal = `
data_dir: /tmp/relay
environments:
  - {project: shop, environment: live, credentials: [{api_key: "${KEY}"}]}
`

func parse(t *testing.T, text string) (*Config, []Problem, error) {
	t.Helper()
	return Parse("relay.yaml", []byte(text), environment(map[string]string{
		"KEY": "hunter2-of-some-length", "SHORT": "hunter2", "DATADOG_KEY": "0123456789abcdef0123456789ABCDEF", "PORT": "4100", "SPACED": "a: b\nc: d", "EMPTY": "",
	}))
}

func TestMinimalHasDefaults(t *testing.T) {
	t.Parallel()
	cfg, warnings, err := parse(t, minimal)
	require.NoError(t, err)
	assert.Empty(t, warnings)
	assert.Nil(t, cfg.Workspace)
	assert.Equal(t, "hunter2-of-some-length", cfg.Environments[0].Credentials[0].APIKey.Reveal())
	assert.Equal(t, "127.0.0.1:3100", cfg.Ingest.Listen)
	assert.Equal(t, IngestLimits{
		BodyBytes: 10 << 20, DecompressedBytes: 64 << 20, Entries: 100_000, LineBytes: 256 << 10,
		Labels: 256, LabelBytes: 64 << 10, Concurrent: 256, InFlightBytes: 256 << 20, ReadTimeout: 30 * time.Second,
	}, cfg.Ingest.Limits)
	assert.Equal(t, Journal{Replicas: 1, StreamPrefix: "AUDITRELAY", Shards: 1, MaxBytes: 10 << 30, DeadLetterBytes: 1 << 30, ReplayWindow: 72 * time.Hour, DuplicateWindow: 10 * time.Minute}, cfg.Journal)
	assert.Equal(t, Streaming{Interval: time.Minute, RotationOverlap: new(15 * time.Minute)}, cfg.Streaming)
	assert.Equal(t, 5*time.Minute, cfg.Settings.Interval)
	assert.Regexp(t, `^auditrelay\.local/.+`, cfg.Audit.Origin)
	assert.Equal(t, "/tmp/relay/audit.key", cfg.Audit.KeyFile)
	assert.Equal(t, "127.0.0.1:9100", cfg.Admin.Listen)
	assert.Equal(t, Log{Level: "info", Format: "text"}, cfg.Log)
	assert.Equal(t, 30*time.Second, cfg.ShutdownTimeout)
}

func TestDefaultsOfDestinations(t *testing.T) {
	t.Parallel()
	cfg, _, err := parse(t, minimal+`
journal: {url: "nats://a:4222, tls://b:4222"}
sinks:
  - {name: k, kafka: {brokers: ["127.0.0.1:9092"]}}
  - {name: n, nats: {url: nats://127.0.0.1:4222}}
  - {name: f, file: {path: x, rotate_bytes: -1, rotate_every: -1s}}
`)
	require.NoError(t, err)
	assert.Equal(t, 3, cfg.Journal.Replicas)
	assert.Equal(t, 5000, cfg.Sinks[0].BatchEvents)
	assert.Equal(t, Size(4<<20), cfg.Sinks[0].BatchBytes)
	assert.Equal(t, 30*time.Second, cfg.Sinks[0].Timeout)
	assert.Equal(t, &Kafka{
		Brokers: []string{"127.0.0.1:9092"}, Topic: "auditrelay.events", Key: "environment", Partitioner: "murmur2",
		Compression: "snappy", Mode: "binary", Delivery: "at_least_once", Partitions: -1, ReplicationFactor: -1,
	}, cfg.Sinks[0].Kafka)
	assert.Equal(t, &NATS{
		URL: "nats://127.0.0.1:4222", Subject: "auditrelay.{project}.{environment}.{type}", Mode: "jetstream",
	}, cfg.Sinks[1].NATS)
	assert.Equal(t, &File{Path: "x", RotateBytes: -1, RotateEvery: -time.Second}, cfg.Sinks[2].File)
}

func TestValuesAsWritten(t *testing.T) {
	t.Parallel()
	cfg, _, err := parse(t, minimal+`
ingest:
  listen: "127.0.0.1:${PORT}"      # a variable inside a value
  limits: {entries: 50_000, concurrent: 010, body_bytes: 5 MB}
journal: {stream_prefix: 0123}      # text, though YAML would make it a number
settings: {disabled: true}
audit:                              # a section of which nothing is given
sinks:
  - name: f
    file: {path: "$${PORT} ${SPACED}"} # an escape; and what a variable holds adds no fields
  - name: k
    kafka: &kafka
      brokers:
        - 127.0.0.1:9092
      topic: |-
        audit
  - {name: again, kafka: *kafka}
`)
	require.NoError(t, err)
	assert.Equal(t, "127.0.0.1:4100", cfg.Ingest.Listen)
	assert.Equal(t, 50_000, cfg.Ingest.Limits.Entries)
	assert.Equal(t, 10, cfg.Ingest.Limits.Concurrent)
	assert.Equal(t, Size(5e6), cfg.Ingest.Limits.BodyBytes)
	assert.Equal(t, "0123", cfg.Journal.StreamPrefix)
	assert.True(t, cfg.Settings.Disabled)
	assert.Equal(t, "${PORT} a: b\nc: d", cfg.Sinks[0].File.Path)
	assert.Equal(t, "audit", cfg.Sinks[1].Kafka.Topic)
	assert.Equal(t, cfg.Sinks[1].Kafka, cfg.Sinks[2].Kafka)
}

func TestSecrets(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "key")
	for _, c := range []struct {
		name, content, value, want string
		warned                     bool
	}{
		{"variable", "", `"${KEY}"`, "hunter2-of-some-length", false},
		{"within a text", "", `"a-${KEY}"`, "a-hunter2-of-some-length", false},
		{"plain", "", `plain-hunter2-of-some-length`, "plain-hunter2-of-some-length", true},
		{"plain with an escape", "", `"$${KEY}-of-some-length"`, "${KEY}-of-some-length", true},
		{"plain with spaces kept", "", `" a secret with spaces "`, " a secret with spaces ", true},
		{"file", "hunter2-of-some-length\n", "file:" + file, "hunter2-of-some-length", false},
		{"file of Windows", "hunter2-of-some-length\r\n", "file:" + file, "hunter2-of-some-length", false},
		{"file without a line break", " hunter2-of-some-length ", "file:" + file, " hunter2-of-some-length ", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			require.NoError(t, os.WriteFile(file, []byte(c.content), 0o600))
			cfg, warnings, err := parse(t, strings.Replace(minimal, `"${KEY}"`, c.value, 1))
			require.NoError(t, err)
			assert.Equal(t, c.want, cfg.Environments[0].Credentials[0].APIKey.Reveal())
			assert.Equal(t, c.warned, len(warnings) == 1)
			if c.warned {
				assert.Equal(t, "environments[0].credentials[0].api_key", warnings[0].Field)
				assert.NotContains(t, warnings[0].String(), c.want)
			}
		})
	}
}

func TestNoOverlapIsNotTheDefault(t *testing.T) {
	t.Parallel()
	cfg, _, err := parse(t, minimal+"streaming: {rotation_overlap: 0}\n")
	require.NoError(t, err)
	assert.Zero(t, *cfg.Streaming.RotationOverlap)
}

func TestSecretFilesThatAreRefused(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ content, want string }{
		"empty":     {"\n", "is empty"},
		"two lines": {"hunter2-of-some-length\nhunter3\n", "line break"},
		"too large": {strings.Repeat("x", maxSecret+1), "is larger than 65536 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "key")
			require.NoError(t, os.WriteFile(file, []byte(c.content), 0o600))
			_, _, err := parse(t, strings.Replace(minimal, `"${KEY}"`, "file:"+file, 1))
			require.ErrorContains(t, err, c.want)
			assert.NotContains(t, err.Error(), "hunter")
		})
	}
}

func TestWarnings(t *testing.T) {
	t.Parallel()
	_, warnings, err := parse(t, `
data_dir: /tmp/relay
workspace: {base_url: https://management.example.com, key_id: a, secret: "${KEY}"}
environments:
  - {project: shop, environment: live, stream: {relay: {hostname: relay.example.com}}}
  - {project: shop, environment: test, skip_settings: true}
sinks:
  - name: k
    kafka: {brokers: ["kafka:9092"], partitions: 3, sasl: {mechanism: plain, username: u, password: "${KEY}"}}
`)
	require.NoError(t, err)
	var got []string
	for _, w := range warnings {
		got = append(got, w.Field)
	}
	assert.Equal(t, []string{
		"environments[0].stream.relay.hostname", "environments[1]", "sinks[0].kafka.partitions", "sinks[0].kafka.sasl.mechanism",
	}, got)
}

func TestLoad(t *testing.T) {
	file := filepath.Join(t.TempDir(), "relay.yaml")
	_, _, err := Load(file)
	require.ErrorIs(t, err, os.ErrNotExist)

	t.Setenv("KEY", "hunter2-of-some-length")
	require.NoError(t, os.WriteFile(file, []byte(minimal), 0o600))
	cfg, _, err := Load(file)
	require.NoError(t, err)
	assert.Equal(t, "/tmp/relay", cfg.DataDir)

	require.NoError(t, os.WriteFile(file, make([]byte, maxFile+1), 0o600))
	_, _, err = Load(file)
	require.ErrorContains(t, err, "is larger than")
}

func TestValidateWithoutAFile(t *testing.T) {
	t.Parallel()
	cfg := &Config{
		DataDir: "/tmp/relay",
		Environments: []Environment{{
			Project: "shop", Environment: "live", Credentials: []Credential{{APIKey: secret.New("hunter2-of-some-length")}},
		}},
	}
	cfg.SetDefaults()
	require.NoError(t, cfg.Validate())

	cfg.Log.Level = "loud"
	var found Errors
	require.True(t, errors.As(cfg.Validate(), &found))
	assert.Equal(t, Errors{{Field: "log.level", Value: "loud", Reason: "must be one of debug, info, warn, error"}}, found)
}

// Commands for a running relay do not have the variables of its secrets.
func TestDataDirAlone(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "relay.yaml")
	write := func(text string) { require.NoError(t, os.WriteFile(path, []byte(text), 0o600)) }
	write("data_dir: /d\nworkspace: {secret: \"${NOT_SET_HERE}\", key_id: \"file:/not/there\"}\n")
	dir, err := DataDir(path)
	require.NoError(t, err)
	assert.Equal(t, "/d", dir)
	for text, want := range map[string]string{
		"log: {level: info}\n":          "data_dir is not set",
		"data_dir: ${NOT_SET_HERE}/d\n": "the environment variable NOT_SET_HERE is not set",
		"data_dir: [\n":                 path,
		"":                              path,
	} {
		write(text)
		_, err := DataDir(path)
		require.ErrorContains(t, err, want, text)
	}
}

// The witnesses are read without the secrets, which a prover need not have.
func TestWitnessesAlone(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "relay.yaml")
	write := func(text string) { require.NoError(t, os.WriteFile(path, []byte(minimal+text), 0o600)) }
	write("audit: {witnesses: [{url: https://a.example, key: a}, {url: https://b.example, key: b}]}\n")
	list, quorum, err := Witnesses(path)
	require.NoError(t, err)
	require.Len(t, list, 2)
	assert.Equal(t, "b", list[1].Key)
	assert.Equal(t, 2, quorum, "all of them by default")
	write("audit: {quorum: 1, witnesses: [{url: https://a.example, key: a}, {url: https://b.example, key: b}]}\n")
	_, quorum, err = Witnesses(path)
	require.NoError(t, err)
	assert.Equal(t, 1, quorum)
	write("audit: {witnesses: [{url: https://a.example, key: \"${NO_SUCH_VARIABLE_OF_OURS}\"}]}\n")
	_, _, err = Witnesses(path)
	require.ErrorContains(t, err, "audit.witnesses[0].key is not set")
	write("")
	list, quorum, err = Witnesses(path)
	require.NoError(t, err)
	assert.Empty(t, list)
	assert.Zero(t, quorum)
}

func TestLines(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "relay.yaml")
	require.NoError(t, os.WriteFile(file, []byte(minimal), 0o600))
	line := Lines(file)
	for field, want := range map[string]int{"data_dir": 2, "environments[0].project": 4, "environments[0].stream": 4, "workspace.secret": 0} {
		assert.Equal(t, want, line(field), field)
	}
	assert.Zero(t, Lines(file+".not")("data_dir"))
}

// A listener with port 0 gets a port of its own, whatever its address is.
func TestListenersWithPort0Differ(t *testing.T) {
	t.Parallel()
	for _, host := range []string{"127.0.0.1", "[::1]"} {
		listen := func(port string) string {
			return strings.ReplaceAll("ingest: {listen: 'A'}\nadmin: {listen: 'A'}\naudit: {serve: {listen: 'A'}}\nconsole: {listen: 'A'}\n", "A", host+port)
		}
		_, _, err := parse(t, minimal+listen(":0"))
		require.NoError(t, err, host)
		_, _, err = parse(t, minimal+listen(":3100"))
		require.ErrorContains(t, err, "must differ from", host)
	}
}
