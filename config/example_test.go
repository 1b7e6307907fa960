package config

import (
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/config/secret"
)

// keyLine is a field in the example, which may be commented out.
var keyLine = regexp.MustCompile(`^(\s*)((?:# \s*)*)((?:- )?[a-z_]+:(?: .*)?)$`)

// uncommented returns the example with every field in use.
func uncommented() string {
	lines := strings.Split(string(Example()), "\n")
	for i, line := range lines {
		if m := keyLine.FindStringSubmatch(line); m != nil {
			lines[i] = m[1] + strings.ReplaceAll(m[2], "# ", "") + m[3]
		}
	}
	return strings.Join(lines, "\n")
}

// decodeAll decodes the uncommented example. As a whole it is invalid, since it names several
// destinations in place of one.
func decodeAll(t *testing.T) (*Config, *decoder) {
	t.Helper()
	d := newDecoder(func(string) (string, bool) { return "x", true })
	text := strings.ReplaceAll(uncommented(), "file:/etc/auditrelay/extra-api-key", "${X}")
	cfg := d.document([]byte(text))
	require.NotNil(t, cfg, "%v", d.errors)
	require.Empty(t, d.errors)
	return cfg, d
}

func TestExampleLoadsClean(t *testing.T) {
	t.Parallel()
	cfg, warnings, err := Parse("example.yaml", Example(), environment(map[string]string{
		"WORKSPACE_KEY_ID": "key-1", "WORKSPACE_KEY_SECRET": "hunter2",
	}))
	require.NoError(t, err)
	assert.Empty(t, warnings)
	assert.Equal(t, "key-1", cfg.Workspace.KeyID)
	assert.Equal(t, "hunter2", cfg.Workspace.Secret.Reveal())
}

func TestExampleHasEveryField(t *testing.T) {
	t.Parallel()
	_, d := decodeAll(t)
	index := regexp.MustCompile(`\[\d+\]`)
	seen := map[string]bool{}
	for path := range d.places {
		seen[index.ReplaceAllString(path, "")] = true
	}
	var walk func(reflect.Type, string)
	walk = func(section reflect.Type, path string) {
		for name, i := range fieldsOf(section) {
			require.NotEmpty(t, name, "%s.%s has no name in YAML", section, section.Field(i).Name)
			at, kind := join(path, name), section.Field(i).Type
			assert.True(t, seen[at], "%s is not in example.yaml", at)
			for kind.Kind() == reflect.Pointer || kind.Kind() == reflect.Slice {
				kind = kind.Elem()
			}
			if kind == reflect.TypeFor[TLSClient]() && at != "journal.tls" {
				continue // explained once, and referred to here
			}
			if kind.Kind() == reflect.Struct && kind != reflect.TypeFor[secret.Text]() {
				walk(kind, at)
			}
		}
	}
	walk(reflect.TypeFor[Config](), "")
}

// TestExampleExplainsEveryField wants prose above each run of fields.
func TestExampleExplainsEveryField(t *testing.T) {
	t.Parallel()
	lines := strings.Split(string(Example()), "\n")
	for i, line := range lines {
		if !keyLine.MatchString(line) {
			continue
		}
		above := i
		for above > 0 && keyLine.MatchString(lines[above]) {
			above--
		}
		assert.Regexp(t, `^\s*# `, lines[above], "line %d, %q, has no explanation above", i+1, line)
	}
}

func TestExampleShowsTheDefaults(t *testing.T) {
	t.Parallel()
	got, _ := decodeAll(t)
	want := &Config{DataDir: got.DataDir, Workspace: &Workspace{}, Sinks: []Sink{{File: &File{}}, {Kafka: &Kafka{}}, {NATS: &NATS{}}, {Loki: &Loki{}}}}
	want.SetDefaults()

	assert.Equal(t, want.Workspace.RequestsPerSecond, got.Workspace.RequestsPerSecond)
	assert.Equal(t, want.Workspace.Timeout, got.Workspace.Timeout)
	assert.Equal(t, want.Ingest.Limits, got.Ingest.Limits)
	assert.Equal(t, want.Journal.MaxBytes, got.Journal.MaxBytes)
	assert.Equal(t, want.Journal.ReplayWindow, got.Journal.ReplayWindow)
	assert.Equal(t, want.Journal.DuplicateWindow, got.Journal.DuplicateWindow)
	assert.Equal(t, want.Journal.StreamPrefix, got.Journal.StreamPrefix)
	assert.Equal(t, want.Streaming, got.Streaming)
	assert.Equal(t, want.Settings.Interval, got.Settings.Interval)
	assert.Equal(t, want.Settings.Disabled, got.Settings.Disabled)
	assert.Equal(t, want.Admin.Listen, got.Admin.Listen)
	assert.Equal(t, want.Admin.Pprof, got.Admin.Pprof)
	assert.Equal(t, want.Log, got.Log)
	assert.Equal(t, want.ShutdownTimeout, got.ShutdownTimeout)
	assert.Equal(t, want.Sinks[0].BatchEvents, got.Sinks[0].BatchEvents)
	assert.Equal(t, want.Sinks[0].BatchBytes, got.Sinks[0].BatchBytes)
	assert.Equal(t, want.Sinks[0].Timeout, got.Sinks[0].Timeout)
	want.Sinks[0].File.Path = got.Sinks[0].File.Path
	assert.Equal(t, want.Sinks[0].File, got.Sinks[0].File)
	assert.Equal(t, want.Sinks[1].Kafka.Topic, got.Sinks[1].Kafka.Topic)
	assert.Equal(t, want.Sinks[1].Kafka.Key, got.Sinks[1].Kafka.Key)
	assert.Equal(t, want.Sinks[1].Kafka.Partitioner, got.Sinks[1].Kafka.Partitioner)
	assert.Equal(t, want.Sinks[1].Kafka.Compression, got.Sinks[1].Kafka.Compression)
	assert.Equal(t, want.Sinks[1].Kafka.Delivery, got.Sinks[1].Kafka.Delivery)
	assert.Equal(t, want.Sinks[2].NATS.Subject, got.Sinks[2].NATS.Subject)
	assert.Equal(t, want.Sinks[2].NATS.Mode, got.Sinks[2].NATS.Mode)
	assert.Equal(t, want.Sinks[3].Loki.Labels, got.Sinks[3].Loki.Labels)
	assert.Equal(t, want.Sinks[3].Loki.LineBytes, got.Sinks[3].Loki.LineBytes)
	assert.Equal(t, want.Sinks[3].Loki.MetadataBytes, got.Sinks[3].Loki.MetadataBytes)
	assert.Equal(t, want.Sinks[3].Loki.MetadataEntries, got.Sinks[3].Loki.MetadataEntries)
	assert.Equal(t, want.Sinks[3].Loki.LateAfter, got.Sinks[3].Loki.LateAfter)
}

// TestFieldKinds checks setScalar for every kind of field in the structs.
func TestFieldKinds(t *testing.T) {
	t.Parallel()
	var walk func(reflect.Type)
	walk = func(kind reflect.Type) {
		switch kind {
		case reflect.TypeFor[secret.Text](), reflect.TypeFor[Size](), reflect.TypeFor[time.Duration](), reflect.TypeFor[Custom]():
			return
		}
		switch kind.Kind() {
		case reflect.Map:
			assert.Equal(t, reflect.String, kind.Key().Kind())
			walk(kind.Elem())
		case reflect.Pointer, reflect.Slice:
			walk(kind.Elem())
		case reflect.Struct:
			for i := range kind.NumField() {
				walk(kind.Field(i).Type)
			}
		default:
			assert.Contains(t, []reflect.Kind{reflect.String, reflect.Bool, reflect.Int, reflect.Float64}, kind.Kind())
		}
	}
	walk(reflect.TypeFor[Config]())
}

// TestTags reads each limit and each default, and wants every default to be within its limits.
func TestTags(t *testing.T) {
	t.Parallel()
	full, _ := decodeAll(t)
	seen := map[string]int{}
	walk(reflect.ValueOf(full), "", "", func(field reflect.Value, at string, tag reflect.StructTag) bool {
		for _, name := range []string{"default", "check"} {
			if _, given := tag.Lookup(name); given {
				seen[name]++
			}
		}
		text, given := tag.Lookup("default")
		if !given {
			return true
		}
		kind := field.Type()
		for kind.Kind() == reflect.Pointer {
			kind = kind.Elem()
		}
		value := valueOf(kind, text)
		assert.False(t, value.IsZero(), "%s: the default of an empty field is empty", at)
		if rule, given := tag.Lookup("check"); given {
			k := &checker{}
			k.rule(at, value, rule)
			assert.Empty(t, k.errors)
		}
		return true
	})
	assert.Greater(t, seen["default"], 40, "the walk finds the tags")
	assert.Greater(t, seen["check"], 40)
}
