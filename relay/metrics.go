package relay

import (
	"context"
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics are the metrics of the pumps, labelled by sink. A nil *Metrics counts nothing.
type Metrics struct {
	delivered, bytes, attempts, failures, retries, rejected *prometheus.CounterVec

	seconds  *prometheus.HistogramVec
	retrying *prometheus.GaugeVec

	deliveries deliveries
}

// NewMetrics registers the metrics.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	label := []string{"sink"}
	counter := func(name, help string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "auditrelay_sink_" + name, Help: help}, label)
		reg.MustRegister(c)
		return c
	}
	m := &Metrics{
		delivered: counter("delivered_events_total", "Events that the sink acknowledged, or that its match left out."),
		bytes:     counter("delivered_bytes_total", "Bytes of the bodies of delivered events, as they were received."),
		attempts:  counter("attempts_total", "Deliveries attempted."),
		failures:  counter("failures_total", "Deliveries that the sink did not acknowledge as a whole."),
		retries:   counter("retries_total", "Waits before a further attempt."),
		rejected:  counter("rejected_events_total", "Events that the sink refused for good; they are in the dead letters."),
		retrying: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "auditrelay_sink_failing", Help: "1 while deliveries fail and are tried again.",
		}, label),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "auditrelay_sink_delivery_seconds", Help: "Duration of one attempt.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 2.5, 12),
		}, label),
	}
	reg.MustRegister(m.retrying, m.seconds, &m.deliveries)
	return m
}

// Begin creates a sink's series with 0, or NaN for times, so that a query finds them before the
// first delivery. A Pump's Run calls it too. Series that exist keep their values.
func (m *Metrics) Begin(sink string) {
	if m == nil {
		return
	}
	for _, c := range []*prometheus.CounterVec{m.delivered, m.bytes, m.attempts, m.failures, m.retries, m.rejected} {
		c.WithLabelValues(sink)
	}
	m.seconds.WithLabelValues(sink)
	m.retrying.WithLabelValues(sink)
	m.deliveries.note(sink, func(*kept) {})
}

// End removes the series of a sink that is delivered to no more.
func (m *Metrics) End(sink string) {
	if m == nil {
		return
	}
	for _, c := range []*prometheus.CounterVec{m.delivered, m.bytes, m.attempts, m.failures, m.retries, m.rejected} {
		c.DeleteLabelValues(sink)
	}
	m.seconds.DeleteLabelValues(sink)
	m.retrying.DeleteLabelValues(sink)
	m.deliveries.forget(sink)
}

func (m *Metrics) attempt(sink string, took time.Duration, err error) {
	if m == nil {
		return
	}
	m.attempts.WithLabelValues(sink).Inc()
	m.seconds.WithLabelValues(sink).Observe(took.Seconds())
	if err == nil {
		return
	}
	m.failures.WithLabelValues(sink).Inc()
	if !errors.Is(err, context.Canceled) { // otherwise it is the relay that is stopping
		m.deliveries.failed(sink, err)
	}
}

func (m *Metrics) deliver(sink string, events []Event) {
	if m == nil || len(events) == 0 {
		return
	}
	size := 0
	for i := range events {
		size += len(events[i].Body)
	}
	m.delivered.WithLabelValues(sink).Add(float64(len(events)))
	m.bytes.WithLabelValues(sink).Add(float64(size))
	m.deliveries.delivered(sink, events)
}

func (m *Metrics) retry(sink string) {
	if m != nil {
		m.retries.WithLabelValues(sink).Inc()
	}
}

func (m *Metrics) reject(sink string, events int) {
	if m != nil {
		m.rejected.WithLabelValues(sink).Add(float64(events))
		m.deliveries.refused(sink, events)
	}
}

func (m *Metrics) failing(sink string, pump *outage, yes bool) {
	if m == nil {
		return
	}
	since := time.Time{}
	if yes {
		since = time.Now()
	}
	m.retrying.WithLabelValues(sink).Set(flag(m.deliveries.failing(sink, pump, since)))
}
