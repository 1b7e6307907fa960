package witness

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

type cosignMetrics struct {
	size, last, failing, refused *prometheus.GaugeVec // by witness
	quorumMissing                prometheus.Gauge
}

func newCosignMetrics(r prometheus.Registerer) *cosignMetrics {
	register := promauto.With(r)
	gauges := func(name, help string) *prometheus.GaugeVec {
		return register.NewGaugeVec(prometheus.GaugeOpts{Name: "auditrelay_audit_" + name, Help: help}, []string{"witness"})
	}
	return &cosignMetrics{
		size:    gauges("witness_cosigned_size", "Size of the trail's tree that the witness has cosigned last for this process."),
		last:    gauges("witness_last_success_timestamp_seconds", "Time of the witness's last cosignature for this process; 0 for none."),
		failing: gauges("witness_failing", "1 while the witness does not cosign, for whatever reason."),
		refused: gauges("witness_refused", "1 while the witness knows another history of the trail."),
		quorumMissing: register.NewGauge(prometheus.GaugeOpts{
			Name: "auditrelay_audit_witness_quorum_missing", Help: "1 while too few witnesses cosign, for longer than a heartbeat of the trail.",
		}),
	}
}

// begin makes a witness's series.
func (m *cosignMetrics) begin(name string) {
	for _, g := range []*prometheus.GaugeVec{m.size, m.last, m.failing, m.refused} {
		g.WithLabelValues(name).Set(0)
	}
}

func (m *cosignMetrics) cosigned(name string, size int64) {
	m.size.WithLabelValues(name).Set(float64(size))
	m.last.WithLabelValues(name).SetToCurrentTime()
	m.fails(name, 0, 0)
}

func (m *cosignMetrics) fails(name string, failing, refused float64) {
	m.failing.WithLabelValues(name).Set(failing)
	m.refused.WithLabelValues(name).Set(refused)
}
