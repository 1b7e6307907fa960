package app

import (
	"math"
	"net/http"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/config"
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

// An alert on a sink that never delivered, or an environment that never pushed, finds its
// series. And `promtool check metrics` has no complaint.
func TestEverySeriesExistsFromTheStart(t *testing.T) {
	t.Parallel()
	dead := config.Sink{Name: "dead", Kafka: &config.Kafka{Brokers: []string{"127.0.0.1:1"}, Topic: "t"}}
	cfg := ofWorkspace(t, testConfig(t.TempDir(), dead))
	r := start(t, cfg)
	defer func() { require.NoError(t, r.stop()) }()
	body, families := r.scrape()

	problems, err := promlint.New(strings.NewReader(body)).Lint()
	require.NoError(t, err)
	assert.Empty(t, problems)

	nan := math.NaN()
	for name, want := range map[string]float64{
		"delivered_events_total": 0, "delivered_bytes_total": 0, "rejected_events_total": 0, "dead_letters": 0, "retries_total": -1, "attempts_total": -1,
		"failures_total": -1, "failing": -1, "lag_events": -1, "lag_seconds": -1,
		"oldest_unacknowledged_timestamp_seconds": -1, "last_success_timestamp_seconds": nan, "failing_since_timestamp_seconds": -1,
		"last_delivered_received_timestamp_seconds": nan, "delivery_seconds": -1,
	} {
		f := families["auditrelay_sink_"+name]
		if !assert.NotNil(t, f, name) {
			continue
		}
		for _, sink := range []string{"dead", "file"} {
			got := values(f, "sink", sink)
			if assert.Len(t, got, 1, "%s of %s", name, sink) && want != -1 && sink == "dead" {
				assert.True(t, got[0] == want || math.IsNaN(want) && math.IsNaN(got[0]), "%s of %s is %v, not %v", name, sink, got[0], want)
			}
		}
	}
	assert.Len(t, values(families["auditrelay_sink_last_error"], "sink", "dead"), 6)
	assert.Len(t, values(families["auditrelay_dead_letters_bytes"], "sink", "dead"), 1)
	for _, e := range cfg.Environments {
		for name, series := range map[string]int{"events_total": 1, "bytes_total": 1, "duplicate_events_total": 1, "unauthorized_total": 1, "environment_refused_total": 2} {
			if f := families["auditrelay_ingest_"+name]; assert.NotNil(t, f, name) {
				assert.Len(t, values(f, "environment", e.Environment), series, name)
			}
		}
		assert.Len(t, values(families["auditrelay_journal_undelivered_bytes"], "source", "/projects/"+e.Project+"/environments/"+e.Environment), 1)
	}
	for _, name := range []string{
		"auditrelay_journal_bytes", "auditrelay_journal_budget_bytes", "auditrelay_journal_seconds_to_full", "auditrelay_ready",
		"auditrelay_workspace_requests_per_second_needed", "auditrelay_workspace_requests_per_second_limit",
		"auditrelay_management_requests_total", "auditrelay_settings_looks_total", "auditrelay_connections_refused_total",
	} {
		assert.Contains(t, families, name)
	}
}
