package audit

import "github.com/prometheus/client_golang/prometheus"

type metrics struct {
	entries, signed           prometheus.Gauge
	checkpoints, appendErrors prometheus.Counter
}

// newMetrics registers with r, which may be nil.
func newMetrics(r prometheus.Registerer) *metrics {
	m := &metrics{
		entries: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "auditrelay_audit_entries", Help: "Entries of the audit trail.",
		}),
		signed: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "auditrelay_audit_signed_entries", Help: "Entries that the newest checkpoint covers.",
		}),
		checkpoints: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "auditrelay_audit_checkpoints_total", Help: "Checkpoints that were kept.",
		}),
		appendErrors: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "auditrelay_audit_append_errors_total", Help: "Appends that failed or were refused.",
		}),
	}
	if r != nil {
		r.MustRegister(m.entries, m.signed, m.checkpoints, m.appendErrors)
	}
	return m
}
