package journal

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/auditrelay/auditrelay/internal/datadir"
	"github.com/auditrelay/auditrelay/internal/streamserver"
)

type metrics struct {
	commitSeconds                 prometheus.Histogram
	commits, failures             prometheus.Counter
	events, rawBytes, storedBytes prometheus.Counter
	doubts                        prometheus.Gauge
}

func newMetrics(reg prometheus.Registerer) *metrics {
	counter := func(name, help string) prometheus.Counter {
		c := prometheus.NewCounter(prometheus.CounterOpts{Name: "auditrelay_journal_" + name, Help: help})
		reg.MustRegister(c)
		return c
	}
	m := &metrics{
		commitSeconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "auditrelay_journal_commit_seconds",
			Help:    "Time from handing a record to the server until it is on disk.",
			Buckets: prometheus.ExponentialBuckets(0.00025, 2, 16),
		}),
		commits:     counter("commits_total", "Records committed."),
		failures:    counter("commit_failures_total", "Records that could not be committed; their pushes were refused."),
		events:      counter("events_total", "Events committed."),
		rawBytes:    counter("raw_bytes_total", "Bytes committed, before compression."),
		storedBytes: counter("stored_bytes_total", "Bytes committed, after compression."),
	}
	m.doubts = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "auditrelay_journal_trim_blocked",
		Help: "1 while nothing is trimmed, as some sink's position is not known for certain; else 0.",
	})
	reg.MustRegister(m.commitSeconds, m.doubts)
	return m
}

func (m *metrics) commit(start time.Time, events, raw, stored int, err error) {
	if err != nil {
		m.failures.Inc()
		return
	}
	m.commitSeconds.Observe(time.Since(start).Seconds())
	m.commits.Inc()
	m.events.Add(float64(events))
	m.rawBytes.Add(float64(raw))
	m.storedBytes.Add(float64(stored))
}

// doubt notes whether trimming is blocked.
func (m *metrics) doubt(blocked bool) {
	if blocked {
		m.doubts.Set(1)
		return
	}
	m.doubts.Set(0)
}

var (
	usedDesc   = prometheus.NewDesc("auditrelay_journal_used_bytes", "Disk that the events' stream takes.", nil, nil)
	budgetDesc = prometheus.NewDesc("auditrelay_journal_budget_bytes", "Disk that the events' stream may take.", nil, nil)
	replayDesc = prometheus.NewDesc("auditrelay_journal_replay_seconds", "Age of the oldest record: how far back a replay can reach.", nil, nil)
	heldDesc   = prometheus.NewDesc("auditrelay_journal_undelivered_bytes", "Disk that events of a source take until every sink has them, about.", []string{"source"}, nil)
)

// usageCollector asks for the usage when it is scraped.
type usageCollector struct{ j *Journal }

func (c *usageCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{usedDesc, budgetDesc, replayDesc, heldDesc} {
		ch <- desc
	}
}

func (c *usageCollector) Collect(ch chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	u, err := c.j.Usage(ctx)
	if err != nil {
		ch <- prometheus.NewInvalidMetric(usedDesc, err)
		return
	}
	ch <- prometheus.MustNewConstMetric(usedDesc, prometheus.GaugeValue, float64(u.Bytes))
	ch <- prometheus.MustNewConstMetric(budgetDesc, prometheus.GaugeValue, float64(u.MaxBytes))
	ch <- prometheus.MustNewConstMetric(replayDesc, prometheus.GaugeValue, u.ReplaySeconds)
	for source, bytes := range c.j.budget.BySource() {
		ch <- prometheus.MustNewConstMetric(heldDesc, prometheus.GaugeValue, float64(bytes), source)
	}
}

// watermarkFailures counts failed writes of watermarks.
func watermarkFailures(m *datadir.Watermarks) prometheus.Collector {
	return prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "auditrelay_journal_mark_failures_total",
		Help: "Watermarks beside the journal that could not be written; after a kill, sinks may get more events twice.",
	}, func() float64 { return float64(m.Failures()) })
}

// unscrubbed is how much the start took on trust.
func unscrubbed(c *streamserver.Conn) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "auditrelay_journal_unscrubbed_bytes",
		Help: "Disk of the events' stream that was verified before the start, and not since.",
	}, func() float64 { return float64(c.Unscrubbed()) })
}
