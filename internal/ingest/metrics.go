package ingest

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/auditrelay/auditrelay/internal/ingest/received"
)

type metrics struct {
	requests, rejected, unauthorized *prometheus.CounterVec
	inFlight                         prometheus.Gauge
	duration                         *prometheus.HistogramVec
	taken                            map[*endpoint]series // of pushes that were taken whole: looking series up by name costs more
}

// series are those of an endpoint and a status.
type series struct {
	requests prometheus.Counter
	duration prometheus.Observer
}

func newMetrics(r prometheus.Registerer, memory *budget, book *received.Book) *metrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "auditrelay_ingest_" + name, Help: help}, labels)
	}
	m := &metrics{
		requests: counter("requests_total", "Pushes by the status of their answer.", "endpoint", "code"),
		rejected: counter("rejected_total", "Pushes refused, by reason; with the reason entry: entries refused.", "reason"),
		unauthorized: counter("unauthorized_total", "Pushes without a good credential, by reason (missing, wrong, not_configured), and by environment if the user name is a configured one's, or the credential one's that is not configured any more.",
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
	m.taken = map[*endpoint]series{}
	m.begin(book)
	r.MustRegister(newTallies(book), m.requests, m.rejected, m.unauthorized, m.inFlight, m.duration, inFlightBytes)
	return m
}

// begin makes the series of all endpoints, reasons and environments.
func (m *metrics) begin(book *received.Book) {
	for _, e := range endpoints {
		m.taken[e] = m.of(e, e.taken)
		for _, code := range []string{"400", "401", "403", "405", "408", "413", "415", "422", "429", "503"} {
			m.requests.WithLabelValues(e.name, code)
		}
	}
	for _, reason := range []string{"aborted", "path", "method", "entry", "not_configured"} {
		m.rejected.WithLabelValues(reason)
	}
	for reason := range inBook {
		m.rejected.WithLabelValues(reason)
	}
	m.unauthorized.WithLabelValues("", "", "missing")
	m.unauthorized.WithLabelValues("", "", "wrong")
	book.Each(func(e *received.Environment) {
		m.unauthorized.WithLabelValues(e.Name().Project, e.Name().Environment, "wrong")
	})
}

func (m *metrics) of(e *endpoint, status int) series {
	return series{m.requests.WithLabelValues(e.name, strconv.Itoa(status)), m.duration.WithLabelValues(e.name)}
}

func (m *metrics) done(e *endpoint, status int, took time.Duration) {
	s, known := m.taken[e]
	if !known || status != e.taken {
		s = m.of(e, status)
	}
	s.requests.Inc()
	s.duration.Observe(took.Seconds())
}

// tallies are the counts of each environment in the book of arrivals, as metrics.
type tallies struct {
	book                      *received.Book
	events, bytes, duplicates *prometheus.Desc
}

func newTallies(book *received.Book) *tallies {
	desc := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc("auditrelay_ingest_"+name, help, []string{"project", "environment"}, nil)
	}
	return &tallies{
		book: book, events: desc("events_total", "Durable events."),
		bytes:      desc("bytes_total", "Bytes of the bodies of durable events."),
		duplicates: desc("duplicate_events_total", "Repeated events, durable already: acknowledged, and not stored again."),
	}
}

// Describe implements [prometheus.Collector].
func (t *tallies) Describe(out chan<- *prometheus.Desc) {
	out <- t.events
	out <- t.bytes
	out <- t.duplicates
}

// Collect implements [prometheus.Collector].
func (t *tallies) Collect(out chan<- prometheus.Metric) {
	t.book.Each(func(e *received.Environment) {
		env, totals := e.Name(), e.Own()
		for desc, n := range map[*prometheus.Desc]int64{t.events: totals.Events, t.bytes: totals.Bytes, t.duplicates: totals.Duplicates} {
			out <- prometheus.MustNewConstMetric(desc, prometheus.CounterValue, float64(n), env.Project, env.Environment)
		}
	})
}
