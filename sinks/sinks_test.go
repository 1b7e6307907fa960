package sinks

import (
	"context"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/config/secret"
	"github.com/auditrelay/auditrelay/internal/testbed/readback"
	"github.com/auditrelay/auditrelay/relay"
	"github.com/auditrelay/auditrelay/relay/relaytest"
	"github.com/auditrelay/auditrelay/sinks/datadog"
	"github.com/auditrelay/auditrelay/sinks/file"
	"github.com/auditrelay/auditrelay/sinks/kafka"
	"github.com/auditrelay/auditrelay/sinks/loki"
	"github.com/auditrelay/auditrelay/sinks/nats"
	"github.com/auditrelay/auditrelay/sinks/webhook"
)

// Each section makes its sink, although there is nothing to connect to.
func TestOpen(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "events.jsonl")
	for want, s := range map[any]config.Sink{
		&kafka.Sink{}:   {Name: "k", Kafka: &config.Kafka{Brokers: []string{"127.0.0.1:1"}}},
		&nats.Sink{}:    {Name: "n", NATS: &config.NATS{URL: "nats://127.0.0.1:1"}},
		&webhook.Sink{}: {Name: "w", Webhook: &config.Webhook{URL: secret.New("https://127.0.0.1:1/hook")}},
		&datadog.Sink{}: {Name: "d", Datadog: &config.Datadog{APIKey: secret.New("key")}},
		&file.Sink{}:    {Name: "f", File: &config.File{Path: path}},
		&loki.Sink{}:    {Name: "l", Loki: &config.Loki{URL: "http://127.0.0.1:1/loki/api/v1/push"}},
	} {
		sink, err := Open(s, Deps{})
		require.NoError(t, err, s.Name)
		assert.IsType(t, want, sink)
		assert.Implements(t, (*relay.Checker)(nil), sink)
		if s.File != nil {
			require.NoError(t, sink.Deliver(t.Context(), relaytest.Events(1)))
			require.FileExists(t, path)
		}
		require.NoError(t, sink.Close())
	}
}

// Two instances of a sink, as with parallel, share its counter.
func TestOpenRegistersTheDuplicatesOnce(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	for range 2 {
		sink, err := Open(config.Sink{Name: "n", NATS: &config.NATS{URL: "nats://127.0.0.1:1"}}, Deps{Registerer: reg})
		require.NoError(t, err)
		require.NoError(t, sink.Close())
	}
	n, err := testutil.GatherAndCount(reg, "auditrelay_sink_duplicate_events_total")
	require.NoError(t, err)
	assert.Equal(t, 1, n)
}

// ownSection is the section of a program's own kind of sink.
type ownSection struct{}

func (*ownSection) SetDefaults()               {}
func (*ownSection) Problems() []config.Problem { return nil }

// countingSink counts its deliveries.
type countingSink struct {
	relay.Sink

	delivered prometheus.Counter
}

func (s countingSink) Deliver(context.Context, []relay.Event) error { s.delivered.Inc(); return nil }
func (s countingSink) Close() error                                 { return nil }

// All instances of a program's own sink count together, under the sink's name.
func TestOwnKindsHaveMetrics(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	kind := NewKind("own", func(_ *ownSection, opts Options) (relay.Sink, error) {
		c, err := Register(opts, prometheus.NewCounter(prometheus.CounterOpts{Name: "own_deliveries_total", Help: "Deliveries."}))
		return countingSink{delivered: c}, err
	})
	for _, name := range []string{"a", "a", "b"} {
		custom := &config.Custom{Kind: "own", Section: &ownSection{}}
		sink, err := Open(config.Sink{Name: name, Custom: custom}, Deps{Registerer: reg, Kinds: Kinds{kind}})
		require.NoError(t, err)
		require.NoError(t, sink.Deliver(t.Context(), relaytest.Events(1)))
		uncounted, err := Open(config.Sink{Name: name, Custom: custom}, Deps{Kinds: Kinds{kind}})
		require.NoError(t, err)
		require.NoError(t, uncounted.Deliver(t.Context(), relaytest.Events(1)))
	}
	require.NoError(t, testutil.GatherAndCompare(reg, strings.NewReader(`# HELP auditrelay_sink_own_deliveries_total Deliveries.
# TYPE auditrelay_sink_own_deliveries_total counter
auditrelay_sink_own_deliveries_total{sink="a"} 2
auditrelay_sink_own_deliveries_total{sink="b"} 1
`)))
}

// Open does not rely on its caller: it completes and validates the section.
func TestOpenErrors(t *testing.T) {
	t.Parallel()
	for want, s := range map[string]config.Sink{
		"must have exactly one destination: kafka, ": {Name: "x"},
		"must have exactly one destination: ":        {Name: "x", Kafka: &config.Kafka{}, File: &config.File{}},
		"kafka.brokers: is required":                 {Name: "x", Kafka: &config.Kafka{}},
		"file.path: is required":                     {Name: "x", File: &config.File{}},
		"webhook.url: is required":                   {Name: "x", Webhook: &config.Webhook{}},
		"datadog.api_key: is required":               {Name: "x", Datadog: &config.Datadog{}},
		"loki.url: is required":                      {Name: "x", Loki: &config.Loki{}},
		`nats.mode: "x": must be one of`:             {Name: "x", NATS: &config.NATS{Mode: "x"}},
		`no kind of sink is called "y"`:              {Name: "x", Custom: &config.Custom{Kind: "y", Section: &ownSection{}}},
	} {
		sink, err := Open(s, Deps{})
		require.ErrorContains(t, err, `open sink "x": `)
		require.ErrorContains(t, err, want)
		assert.Nil(t, sink)
	}
}

func TestOpenErrorsOfRouting(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "events.jsonl")
	for want, s := range map[string]config.Sink{
		`undeclared reference to 'typ'`: {Name: "a", Match: &config.Match{CEL: "typ == ''"}},
		`redact.remove[0]: "email": `:   {Name: "b", Redact: &config.Redact{Remove: []string{"email"}}},
		`redact.hash_key: is required`:  {Name: "c", Redact: &config.Redact{Hash: []string{"/email"}}},
	} {
		s.File = &config.File{Path: path}
		sink, err := Open(s, Deps{})
		require.ErrorContains(t, err, want)
		assert.Nil(t, sink)
		assert.NoFileExists(t, path, "nothing is opened for what cannot be used")
	}
}

// Two sinks of one configuration get the same events, and each takes its own part of them.
func TestOpenRoutes(t *testing.T) {
	t.Parallel()
	dir, reg := t.TempDir(), prometheus.NewRegistry()
	events := relaytest.Events(100)
	all := config.Sink{Name: "all", File: &config.File{Path: filepath.Join(dir, "all.jsonl")}}
	failed := config.Sink{
		Name: "failed", File: &config.File{Path: filepath.Join(dir, "failed.jsonl")},
		Match:  &config.Match{Types: []string{"event_log.*"}, CEL: `body.status == "error"`},
		Redact: &config.Redact{Remove: []string{"/ip_address"}, Hash: []string{"/user_id"}, HashKey: secret.New("0123456789abcdef")},
	}
	got := map[string]map[string]string{}
	for _, s := range []config.Sink{all, failed} {
		sink, err := Open(s, Deps{Registerer: reg})
		require.NoError(t, err)
		require.NoError(t, sink.Deliver(t.Context(), events))
		require.NoError(t, sink.Close())
		got[s.Name] = map[string]string{}
		for rec, err := range readback.Records(s.File.Path) {
			require.NoError(t, err)
			got[s.Name][rec.ID()] = string(rec.Body)
		}
	}
	require.Len(t, got["all"], 100)
	failures := 0
	for i := range events {
		body := string(events[i].Body)
		assert.Equal(t, body, got["all"][events[i].ID])
		redacted, there := got["failed"][events[i].ID]
		require.Equal(t, strings.Contains(body, `"status":"error"`), there)
		if !there {
			continue
		}
		failures++
		assert.NotContains(t, redacted, "ip_address")
		assert.Regexp(t, `"user_id":"hmac-sha256:[0-9a-f]{64}","session_id":"session-live-`, redacted)
	}
	assert.InDelta(t, 20, failures, 15)
	unmatched, err := testutil.GatherAndCount(reg, "auditrelay_sink_unmatched_events_total")
	require.NoError(t, err)
	assert.Equal(t, 1, unmatched)
}

func TestCheck(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "events.jsonl")
	found := map[string]string{}
	report := func(what, text string) { found[what] = text }
	require.NoError(t, Check(t.Context(), config.Sink{Name: "f", File: &config.File{Path: path}}, nil, Deps{}, report))
	assert.Contains(t, found["file "+path], "will be made")
	assert.NoFileExists(t, path)

	require.ErrorContains(t, Check(t.Context(), config.Sink{Name: "d", File: &config.File{}}, nil, Deps{}, report), `file.path: is required`)
	require.ErrorIs(t, check(t.Context(), &relaytest.Sink{}, report), ErrNoCheck)
}
