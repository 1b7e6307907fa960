package connlimit

import "github.com/prometheus/client_golang/prometheus"

// Metrics count the connections of all doors of a process.
type Metrics struct {
	open             *prometheus.GaugeVec
	refused, evicted *prometheus.CounterVec
	handshakes       *prometheus.CounterVec
}

// NewMetrics registers the metrics.
func NewMetrics(r prometheus.Registerer) *Metrics {
	m := &Metrics{
		open: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "auditrelay_connections_open", Help: "Connections of clients that are open, by listener.",
		}, []string{"listener"}),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "auditrelay_connections_refused_total", Help: "New connections that were closed at once, by listener and the bound that was reached (total, address).",
		}, []string{"listener", "reason"}),
		evicted: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "auditrelay_connections_evicted_total", Help: "Connections that were closed to let a new one in, by listener and the bound that was reached (total, address).",
		}, []string{"listener", "reason"}),
		handshakes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "auditrelay_tls_handshakes_failed_total",
			Help: "Failed TLS handshakes, by listener and reason: certificate (one side refuses the other's), plain_http (the client speaks HTTP) or other.",
		}, []string{"listener", "reason"}),
	}
	r.MustRegister(m.open, m.refused, m.evicted, m.handshakes)
	return m
}

// begin creates a listener's series, so that they are exported before anything happens.
func (m *Metrics) begin(listener string) {
	m.open.WithLabelValues(listener)
	for _, reason := range []string{reasonTotal, reasonAddress} {
		m.refused.WithLabelValues(listener, reason)
		m.evicted.WithLabelValues(listener, reason)
	}
	for _, reason := range []string{handshakeCertificate, handshakePlain, handshakeOther} {
		m.handshakes.WithLabelValues(listener, reason)
	}
}
