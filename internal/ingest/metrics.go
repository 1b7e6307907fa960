package ingest

import (
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/auditrelay/auditrelay/internal/credentials"
)

type metrics struct {
	events, bytes, duplicates, requests, rejected, unauthorized *prometheus.CounterVec
	inFlight                                                    prometheus.Gauge
	duration                                                    *prometheus.HistogramVec
}

func newMetrics(r prometheus.Registerer, memory *budget) *metrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "auditrelay_ingest_" + name, Help: help}, labels)
	}
	m := &metrics{
		events:     counter("events_total", "Durable events.", "project", "environment"),
		bytes:      counter("bytes_total", "Bytes of the bodies of durable events.", "project", "environment"),
		duplicates: counter("duplicate_events_total", "Repeated events, durable already: acknowledged, and not stored again.", "project", "environment"),
		requests:   counter("requests_total", "Pushes by the status of their answer.", "endpoint", "code"),
		rejected:   counter("rejected_total", "Pushes refused, by reason; with the reason entry: entries refused.", "reason"),
		unauthorized: counter("unauthorized_total", "Pushes without a good credential, by reason (missing, wrong), and by environment if the user name is a configured one's.",
			"project", "environment", "reason"),
		inFlight: prometheus.NewGauge(prometheus.GaugeOpts{Name: "auditrelay_ingest_in_flight", Help: "Unanswered pushes."}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "auditrelay_ingest_request_duration_seconds", Help: "Time from a push's header to its answer.",
			Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30},
		}, []string{"endpoint"}),
	}
	inFlightBytes := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "auditrelay_ingest_in_flight_bytes", Help: "Memory held by unanswered pushes.",
	}, func() float64 { return float64(memory.used.Load()) })
	r.MustRegister(m.events, m.bytes, m.duplicates, m.requests, m.rejected, m.unauthorized, m.inFlight, m.duration, inFlightBytes)
	return m
}

// took counts the events of a durable push.
func (m *metrics) took(a *seen, p *push, now time.Time) {
	a.once.Do(func() {
		a.events = m.events.WithLabelValues(p.batch.group.Project, p.batch.group.Environment)
		a.duplicates = m.duplicates.WithLabelValues(p.batch.group.Project, p.batch.group.Environment)
		a.bytes = m.bytes.WithLabelValues(p.batch.group.Project, p.batch.group.Environment)
	})
	a.events.Add(float64(p.batch.records.Len()))
	a.bytes.Add(float64(p.batch.bytes))
	a.duplicates.Add(float64(p.batch.duplicates))
	a.push.Store(now.UnixNano())
	for {
		newest := a.event.Load()
		if p.batch.newest <= newest || a.event.CompareAndSwap(newest, p.batch.newest) {
			return
		}
	}
}

func (m *metrics) done(e endpoint, status int, took time.Duration) {
	m.requests.WithLabelValues(e.String(), strconv.Itoa(status)).Inc()
	m.duration.WithLabelValues(e.String()).Observe(took.Seconds())
}

// activity records the last push and the last event of each environment.
type activity struct{ environments sync.Map } // credentials.Environment to *seen

type seen struct {
	push, event               atomic.Int64 // Unix nanoseconds, 0 for never
	once                      sync.Once    // for the counters
	events, bytes, duplicates prometheus.Counter
}

func (a *activity) of(env credentials.Environment) *seen {
	if s, ok := a.environments.Load(env); ok {
		return s.(*seen) //nolint:errcheck // nothing else is stored
	}
	s, _ := a.environments.LoadOrStore(env, &seen{})
	return s.(*seen) //nolint:errcheck // nothing else is stored
}

// LastPush is the time of env's last push of durable or repeated events, since the
// handler was made; zero for none.
func (h *Handler) LastPush(env credentials.Environment) time.Time {
	return timeOf(h.activity.of(env).push.Load())
}

// LastEvent is the newest time of env's events, by their sender's word, since the handler
// was made; zero for none.
func (h *Handler) LastEvent(env credentials.Environment) time.Time {
	return timeOf(h.activity.of(env).event.Load())
}

func timeOf(ns int64) time.Time {
	if ns == 0 {
		return time.Time{}
	}
	return time.Unix(0, ns)
}
