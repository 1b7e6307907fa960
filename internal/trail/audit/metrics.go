package audit

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

type metrics struct {
	entries, signed                        prometheus.Gauge
	damaged, problems, generations, usable prometheus.Gauge
	checkpoints, appendErrors, named       prometheus.Counter
}

// newMetrics registers with r, unless r is nil.
func newMetrics(r prometheus.Registerer) *metrics {
	register := promauto.With(r)
	gauge := func(name, help string) prometheus.Gauge {
		return register.NewGauge(prometheus.GaugeOpts{Name: "auditrelay_audit_" + name, Help: help})
	}
	counter := func(name, help string) prometheus.Counter {
		return register.NewCounter(prometheus.CounterOpts{Name: "auditrelay_audit_" + name, Help: help})
	}
	return &metrics{
		entries:      gauge("entries", "Entries of the audit trail."),
		signed:       gauge("signed_entries", "Entries that the newest checkpoint covers."),
		damaged:      gauge("damaged_entries", "Entries of the audit trail that are lost or not what was signed; the trail's own entries name them."),
		problems:     gauge("problems", "Problems of the audit trail as of when it was read back, damaged checkpoints among them."),
		generations:  gauge("generations", "Generations of the audit trail; more than 1 means that its tree or its key was lost."),
		usable:       gauge("usable", "1 while the audit trail can be used, 0 while it is tried again."),
		checkpoints:  counter("checkpoints_total", "Checkpoints that were kept."),
		appendErrors: counter("append_errors_total", "Appends that failed or were refused."),
		named:        counter("named_problems_total", "Problems that were named in the trail by this process."),
	}
}
