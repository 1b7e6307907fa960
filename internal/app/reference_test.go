package app

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/testbed/natstest"
	"github.com/auditrelay/auditrelay/internal/testbed/reference"
	"github.com/auditrelay/auditrelay/internal/testbed/waiting"
	"github.com/auditrelay/auditrelay/internal/trail/witness"
)

// TestMetricsReferenceIs compares the reference of the metrics with those that a relay with every
// part registers, on a disk and on a cluster.
func TestMetricsReferenceIs(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t, t.TempDir())
	all := map[string]metric{}
	for _, journal := range []config.Journal{{}, {URL: srv.ClientURL(), Replicas: 1, MaxBytes: 64 << 20}} {
		registered(t, withEveryPart(t, srv.ClientURL(), journal), all)
	}
	reg := prometheus.NewRegistry() // of `auditrelay witness`
	witness.NewHandler(&witness.Witness{}, slog.New(slog.DiscardHandler), reg)
	listed(t, reg, map[string]string{}, all)
	text := "# Metrics\n\nMade from a running relay by `make reference`; a test fails while it is stale. [What to watch](../../README.md#what-to-watch) says which of them matter. " +
		"`go_*`, `process_*` and `promhttp_*` are those of every Go program.\n" + reference.Head("name", "type", "labels", "meaning")
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if m := all[name]; strings.HasPrefix(name, "auditrelay_") {
			text += reference.Row("`"+name+"`", m.kind, strings.ReplaceAll(m.labels, ",", ", "), m.help)
		}
	}
	reference.Page(t, "metrics.md", text)
}

func withEveryPart(t *testing.T, nats string, journal config.Journal) *config.Config {
	t.Helper()
	dir := t.TempDir()
	client := &config.TLSClient{}
	client.CertFile, client.KeyFile = issue(t, dir, "client", time.Now().Add(time.Hour))
	cfg := ofWorkspace(t, testConfig(filepath.Join(dir, "relay"),
		config.Sink{Name: "kafka", Kafka: &config.Kafka{Brokers: []string{"127.0.0.1:1"}, Topic: "t", TLS: client}},
		config.Sink{Name: "nats", NATS: &config.NATS{URL: nats}},
		config.Sink{Name: "loki", Loki: &config.Loki{URL: "http://127.0.0.1:1/loki/api/v1/push"}}))
	key, err := witness.GenerateKey(filepath.Join(dir, "witness.key"), "witness.example.com/away")
	require.NoError(t, err)
	cfg.Audit.Witnesses, cfg.Audit.Quorum = []config.Witness{{URL: "http://127.0.0.1:1", Key: key.Public()}}, 1
	cfg.Sinks[0].Match, cfg.Sinks[0].Redact = &config.Match{CEL: "true"}, &config.Redact{Remove: []string{"/a"}}
	cfg.Policies.Packs = []string{"baseline"}
	cfg.Journal = journal
	cfg.SetDefaults()
	require.NoError(t, cfg.Validate())
	return cfg
}

type metric struct{ kind, labels, help string }

var described = regexp.MustCompile(`fqName: "([^"]*)", help: ("(?:[^"\\]|\\.)*").*variableLabels: \{([^}]*)\}`)

// registered runs a relay, and adds what it has registered.
func registered(t *testing.T, cfg *config.Config, into map[string]metric) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	started, ended := make(chan struct{}), make(chan error, 1)
	o := Options{Logger: slog.New(slog.DiscardHandler), Started: func(Addresses) { close(started) }}
	o.Reloads.Source.Again = func(func(string) bool) (*config.Config, config.Source, error) { return cfg, config.Source{}, nil } // as of a file
	r := newProcess(cfg, o)
	go func() { ended <- r.serveUntil(ctx, o) }()
	waiting.Until(t, func() bool {
		select {
		case <-started:
			return true
		default:
			return false
		}
	})
	kinds := map[string]string{}
	waiting.Until(t, func() bool {
		families, err := r.reg.Gather()
		for _, f := range families {
			kinds[f.GetName()] = strings.ToLower(f.GetType().String())
		}
		return err == nil && kinds["auditrelay_policies_violated"] != ""
	})
	listed(t, r.reg, kinds, into)
	listed(t, r.control.passing.Load(), kinds, into)
	cancel()
	require.NoError(t, <-ended)
}

// listed adds what is registered. A family without any series shows no type; then its name does, by
// the rule of Prometheus.
func listed(t *testing.T, reg *prometheus.Registry, kinds map[string]string, into map[string]metric) {
	t.Helper()
	found := make(chan *prometheus.Desc)
	go func() { defer close(found); reg.Describe(found) }()
	for d := range found {
		m := described.FindStringSubmatch(d.String())
		require.NotNil(t, m, d.String())
		help, err := strconv.Unquote(m[2])
		require.NoError(t, err)
		usual := map[bool]string{true: "counter", false: "gauge"}[strings.HasSuffix(m[1], "_total")]
		into[m[1]] = metric{cmp.Or(kinds[m[1]], usual), m[3], help}
	}
}
