package app

import (
	"math"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/health"
	"github.com/auditrelay/auditrelay/internal/trail/witness"
	"github.com/auditrelay/auditrelay/relay"
)

// scrape reads /metrics as Prometheus does, by family.
func (r *running) scrape() (string, map[string]*dto.MetricFamily) {
	r.t.Helper()
	code, body := r.get("/metrics")
	require.Equal(r.t, http.StatusOK, code)
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(body))
	require.NoError(r.t, err)
	return body, families
}

// values are those of a family's series with the label's value.
func values(f *dto.MetricFamily, label, value string) (all []float64) {
	for _, series := range f.GetMetric() {
		for _, l := range series.GetLabel() {
			if l.GetName() == label && l.GetValue() == value {
				all = append(all, series.GetGauge().GetValue()+series.GetCounter().GetValue()+series.GetUntyped().GetValue())
			}
		}
	}
	return all
}

// An alert finds the series of a sink without deliveries, or an environment without
// pushes. `promtool check metrics` has no complaint. The rules and the dashboards name
// only what there is.
func TestMetricsOfARunningRelay(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	client := &config.TLSClient{}
	client.CertFile, client.KeyFile = issue(t, dir, "client", time.Now().Add(time.Hour))
	dead := config.Sink{Name: "dead", Kafka: &config.Kafka{Brokers: []string{"127.0.0.1:1"}, Topic: "t", TLS: client}}
	cfg := ofWorkspace(t, testConfig(filepath.Join(dir, "relay"), dead))
	key, err := witness.GenerateKey(filepath.Join(dir, "witness.key"), "witness.example.com/away")
	require.NoError(t, err)
	cfg.Audit.Witnesses = []config.Witness{{URL: "http://127.0.0.1:1", Key: key.Public()}}
	cfg.Audit.Quorum = 1
	r := start(t, cfg)
	defer func() { require.NoError(t, r.stop()) }()
	body, families := r.scrape()
	problems, err := promlint.New(strings.NewReader(body)).Lint()
	require.NoError(t, err)
	assert.Empty(t, problems)
	checkSinks(t, families)
	checkEnvironments(t, families, cfg.Environments)
	checkExpressions(t, families)
	t.Run("by promtool", func(t *testing.T) { assert.Empty(t, promtool(t, "", body, "check", "metrics")) })
}

// checkSinks checks that each sink has its series; one without any delivery has zeros, and
// NaN for times.
func checkSinks(t *testing.T, families map[string]*dto.MetricFamily) {
	t.Helper()
	const any = -1
	nan := math.NaN()
	for name, want := range map[string]float64{
		"delivered_events_total": 0, "delivered_bytes_total": 0, "rejected_events_total": 0, "dead_letters": 0,
		"retries_total": any, "attempts_total": any, "failures_total": any, "failing": any, "lag_events": any, "lag_seconds": any,
		"oldest_unacknowledged_timestamp_seconds": any, "last_success_timestamp_seconds": nan, "failing_since_timestamp_seconds": any,
		"last_delivered_received_timestamp_seconds": nan, "delivery_seconds": any,
	} {
		for _, sink := range []string{"dead", "file"} {
			got := values(families["auditrelay_sink_"+name], "sink", sink)
			if assert.Len(t, got, 1, "%s of %s", name, sink) && want != any && sink == "dead" {
				assert.True(t, got[0] == want || math.IsNaN(want) && math.IsNaN(got[0]), "%s of %s is %v, not %v", name, sink, got[0], want)
			}
		}
	}
	assert.Len(t, values(families["auditrelay_sink_last_error"], "sink", "dead"), len(relay.Classes()))
	assert.Len(t, values(families["auditrelay_dead_letters_bytes"], "sink", "dead"), 1)
}

// checkEnvironments checks that each environment has its series.
func checkEnvironments(t *testing.T, families map[string]*dto.MetricFamily, environments []config.Environment) {
	t.Helper()
	for _, e := range environments {
		for name, series := range map[string]int{"events_total": 1, "bytes_total": 1, "duplicate_events_total": 1, "unauthorized_total": 1, "environment_refused_total": 2} {
			assert.Len(t, values(families["auditrelay_ingest_"+name], "environment", e.Environment), series, name)
		}
		for name, series := range map[string]int{
			"state": len(health.States()), "state_since_timestamp_seconds": 1, "last_push_timestamp_seconds": 1, "last_event_timestamp_seconds": 1, "lateness_seconds": 1,
			"events_per_second": 1, "expected_events_per_second": 1, "refused_pushes_total": 8, "lost_events_estimate_total": 1, "clock_behind_seconds": 1, "gaps_unreviewed": 1, "declared_stale": 1, "silenced": 1,
		} {
			assert.Len(t, values(families["auditrelay_environment_"+name], "environment", e.Environment), series, name)
		}
		assert.Len(t, values(families["auditrelay_journal_undelivered_bytes"], "source", relay.SourceOf(e.Project, e.Environment)), 1)
	}
}
