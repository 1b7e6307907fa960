package relay

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics are the metrics of the pumps, labelled by sink. A nil *Metrics counts nothing.
type Metrics struct {
	seconds    *prometheus.HistogramVec
	deliveries deliveries
}

// NewMetrics registers the metrics.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	m := &Metrics{seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "auditrelay_sink_delivery_seconds", Help: "Duration of one attempt.",
		Buckets: prometheus.ExponentialBuckets(0.0005, 2.5, 12),
	}, []string{"sink"})}
	reg.MustRegister(m.seconds, &m.deliveries)
	return m
}

// Begin creates a sink's series with 0, or NaN for times, so that a query finds them before the
// first delivery. A Pump's Run calls it too. Series that exist keep their values.
func (m *Metrics) Begin(sink string) {
	if m != nil {
		m.seconds.WithLabelValues(sink)
	}
	m.note(sink, func(*kept) {})
}

// End removes the series of a sink that is delivered to no more.
func (m *Metrics) End(sink string) {
	if m != nil {
		m.seconds.DeleteLabelValues(sink)
		m.deliveries.forget(sink)
	}
}

func (m *Metrics) note(sink string, change func(*kept)) {
	if m != nil {
		m.deliveries.note(sink, change)
	}
}

func (m *Metrics) attempt(sink string, took time.Duration, err error) {
	if m != nil {
		m.seconds.WithLabelValues(sink).Observe(took.Seconds())
	}
	m.note(sink, func(d *kept) {
		d.attempts++
		if err == nil {
			return
		}
		d.failures++
		if !errors.Is(err, context.Canceled) { // otherwise it is the relay that is stopping
			d.failed(time.Now(), err)
		}
	})
}

func (m *Metrics) deliver(sink string, events []Event) {
	if len(events) == 0 {
		return
	}
	size := 0
	for i := range events {
		size += len(events[i].Body)
	}
	m.note(sink, func(d *kept) {
		d.bytes += int64(size)
		d.Events, d.LastSuccess, d.newest = d.Events+int64(len(events)), time.Now(), events[len(events)-1].Received
		d.add(d.LastSuccess, func(m *Minute) { m.Delivered += int64(len(events)) })
	})
}

func (m *Metrics) retry(sink string) { m.note(sink, func(d *kept) { d.retries++ }) }

func (m *Metrics) reject(sink string, events int) {
	m.note(sink, func(d *kept) {
		d.rejected += int64(events)
		d.add(time.Now(), func(m *Minute) { m.Refused += int64(events) })
	})
}

// failing notes whether a pump of a sink fails; one that has ended does not.
func (m *Metrics) failing(sink string, pump *outage, yes bool) {
	m.note(sink, func(d *kept) {
		if d.failing == nil {
			d.failing = map[*outage]time.Time{}
		}
		if delete(d.failing, pump); yes {
			d.failing[pump] = time.Now()
		}
		d.FailingSince = time.Time{}
		for _, at := range d.failing {
			if d.FailingSince.IsZero() || at.Before(d.FailingSince) {
				d.FailingSince = at
			}
		}
	})
}

var (
	deliveredDesc = sinkDesc("delivered_events_total", "Events that the sink acknowledged, or that its match left out.")
	bytesDesc     = sinkDesc("delivered_bytes_total", "Bytes of the bodies of delivered events, as they were received.")
	attemptsDesc  = sinkDesc("attempts_total", "Deliveries attempted.")
	failuresDesc  = sinkDesc("failures_total", "Deliveries that the sink did not acknowledge as a whole.")
	retriesDesc   = sinkDesc("retries_total", "Waits before a further attempt.")
	rejectedDesc  = sinkDesc("rejected_events_total", "Events that the sink refused for good; they are in the dead letters.")
	failingDesc   = sinkDesc("failing", "1 while deliveries fail and are tried again.")
	newestDesc    = sinkDesc("last_delivered_received_timestamp_seconds", "When the relay received the event that was delivered last; NaN until this process delivers one.")
	successDesc   = sinkDesc("last_success_timestamp_seconds", "When the sink last acknowledged events; NaN until it acknowledges any to this process.")
	sinceDesc     = sinkDesc("failing_since_timestamp_seconds", "When the deliveries that are being retried began to fail; NaN while all work.")
	errorDesc     = sinkDesc("last_error", "1 for the class of the last failed attempt, 0 for the others; all are 0 before the first one.", "class")
)

func sinkDesc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("auditrelay_sink_"+name, help, append([]string{"sink"}, labels...), nil)
}

// Describe implements [prometheus.Collector].
func (s *deliveries) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		deliveredDesc, bytesDesc, attemptsDesc, failuresDesc, retriesDesc, rejectedDesc, failingDesc, newestDesc, successDesc, sinceDesc, errorDesc,
	} {
		ch <- d
	}
}

// Collect implements [prometheus.Collector].
func (s *deliveries) Collect(ch chan<- prometheus.Metric) {
	s.mu.Lock()
	now := make(map[string]kept, len(s.by))
	for sink, d := range s.by {
		now[sink] = *d
	}
	s.mu.Unlock()
	for sink, d := range now {
		count := func(of *prometheus.Desc, n int64) {
			ch <- prometheus.MustNewConstMetric(of, prometheus.CounterValue, float64(n), sink)
		}
		gauge := func(of *prometheus.Desc, value float64, labels ...string) {
			ch <- prometheus.MustNewConstMetric(of, prometheus.GaugeValue, value, append([]string{sink}, labels...)...)
		}
		count(deliveredDesc, d.Events)
		count(bytesDesc, d.bytes)
		count(attemptsDesc, d.attempts)
		count(failuresDesc, d.failures)
		count(retriesDesc, d.retries)
		count(rejectedDesc, d.rejected)
		gauge(failingDesc, flag(!d.FailingSince.IsZero()))
		gauge(newestDesc, seconds(d.newest))
		gauge(successDesc, seconds(d.LastSuccess))
		gauge(sinceDesc, seconds(d.FailingSince))
		for _, class := range Classes() {
			gauge(errorDesc, flag(class == d.LastErrorClass), string(class))
		}
	}
}

// seconds converts a time for Prometheus; the zero time becomes NaN.
func seconds(t time.Time) float64 {
	if t.IsZero() {
		return math.NaN()
	}
	return float64(t.UnixMilli()) / 1e3
}

func flag(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}
