package config

import (
	"encoding/json"
	"reflect"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/config/secret"
)

// Every field of the configuration has a rule that somebody has written, and every rule is of a
// field that there is.
func TestEachFieldHasARule(t *testing.T) {
	t.Parallel()
	known := map[string]bool{}
	var walk func(reflect.Type, string)
	walk = func(section reflect.Type, path string) {
		for name, i := range fieldsOf(section) {
			at, kind := join(path, name), section.Field(i).Type
			known[at] = true
			for kind.Kind() == reflect.Pointer || kind.Kind() == reflect.Slice {
				kind = kind.Elem()
			}
			if kind.Kind() == reflect.Struct && kind != reflect.TypeFor[secret.Text]() {
				walk(kind, at)
			}
		}
	}
	walk(reflect.TypeFor[Config](), "")
	for at := range known {
		assert.NotEqual(t, unknownField, RuleOf(at).Reason, "%s has no rule in Rules", at)
	}
	for _, r := range Rules() {
		assert.True(t, known[r.Field], "%s is no field of the configuration", r.Field)
		assert.Contains(t, []Rule{Live, Restart}, r.Rule, r.Field)
		assert.NotEmpty(t, r.Reason, r.Field)
	}
}

func diffed(t *testing.T, before, after *Config) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, c := range Diff(before, after) {
		raw, err := json.Marshal([]any{c.Old, c.New})
		require.NoError(t, err)
		assert.NotContains(t, all, c.Field)
		all[c.Field] = string(c.Rule) + " " + string(raw)
	}
	return all
}

func TestDiffNamesEachField(t *testing.T) {
	t.Parallel()
	overlap := time.Minute
	before := func() *Config {
		return &Config{
			DataDir: "/a", Workspace: &Workspace{KeyID: "k", Secret: secret.New("hunter2-hunter2")},
			Environments: []Environment{{Project: "shop", Environment: "live"}, {Project: "shop", Environment: "test"}},
			Streaming:    Streaming{RotationOverlap: &overlap}, Log: Log{Level: "info", Format: "text"},
			Sinks: []Sink{
				{Name: "loki", Timeout: time.Second, Loki: &Loki{URL: "https://loki.example.com", Labels: map[string]string{"a": "b"}}},
				{Name: "gone", File: &File{Path: "/tmp/x"}},
				{Name: "own", Custom: &Custom{Kind: "chat", Section: &queue{Address: "a"}}},
			},
		}
	}
	assert.Empty(t, Diff(before(), before()))

	after := before()
	after.DataDir = "/b"
	after.Workspace.Secret = secret.New("another-hunter2")
	after.Environments[0].Quota.EventsPerSecond = 5
	after.Environments = append(after.Environments[:1], Environment{Project: "shop", Environment: "new"})
	longer := 2 * time.Minute
	after.Streaming.RotationOverlap = &longer
	after.Log = Log{Level: "debug", Format: "json"}
	after.Sinks = []Sink{
		{Name: "own", Custom: &Custom{Kind: "chat", Section: &queue{Address: "b"}}},
		{Name: "loki", Timeout: time.Minute, Loki: &Loki{URL: "https://loki.example.com", Labels: map[string]string{"a": "c"}}},
		{Name: "new", Webhook: &Webhook{URL: secret.New("https://hooks.example.com/T0/secret")}},
	}
	assert.Equal(t, map[string]string{
		"data_dir":         `restart ["/a","/b"]`,
		"workspace.secret": `live ["[redacted]","[redacted]"]`,
		"environments[shop/live].quota.events_per_second": `live [null,5]`,
		"environments[shop/test]":                         `live [{"environment":"test","project":"shop"},null]`,
		"environments[shop/new]":                          `live [null,{"environment":"new","project":"shop"}]`,
		"streaming.rotation_overlap":                      `live ["1m0s","2m0s"]`,
		"log.level":                                       `live ["info","debug"]`,
		"log.format":                                      `restart ["text","json"]`,
		"sinks[loki].timeout":                             `live ["1s","1m0s"]`,
		"sinks[loki].loki.labels":                         `live [{"a":"b"},{"a":"c"}]`,
		"sinks[own].chat.address":                         `live ["a","b"]`,
		"sinks[gone]":                                     `live [{"file":{"path":"/tmp/x"},"name":"gone"},null]`,
		"sinks[new]":                                      `live [null,{"name":"new","webhook":{"url":"[redacted]"}}]`,
	}, diffed(t, before(), after))

	after = before()
	after.Workspace, after.Sinks[1].File, after.Sinks[1].NATS = nil, nil, &NATS{}
	assert.Equal(t, map[string]string{
		"workspace":        `live [{"key_id":"k","secret":"[redacted]"},null]`,
		"sinks[gone].file": `live [{"path":"/tmp/x"},null]`,
		"sinks[gone].nats": `live [null,{}]`,
	}, diffed(t, before(), after))
}
