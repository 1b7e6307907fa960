package journal

import (
	"context"
	"math"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

type metrics struct {
	commitSeconds                 prometheus.Histogram
	commits, failures             prometheus.Counter
	events, rawBytes, storedBytes prometheus.Counter
	notKept, distrusted           prometheus.Counter
	doubts                        prometheus.Gauge
	overlap                       *prometheus.CounterVec // by sink
}

func newMetrics(reg prometheus.Registerer, sinks []string) *metrics {
	of := promauto.With(reg)
	counter := func(name, help string) prometheus.Counter {
		return of.NewCounter(prometheus.CounterOpts{Name: "auditrelay_journal_" + name, Help: help})
	}
	m := &metrics{
		commitSeconds: of.NewHistogram(prometheus.HistogramOpts{
			Name:    "auditrelay_journal_commit_seconds",
			Help:    "Time from packing a record until it is durable.",
			Buckets: prometheus.ExponentialBuckets(0.00025, 2, 16),
		}),
		commits:     counter("commits_total", "Records committed."),
		failures:    counter("commit_failures_total", "Records that could not be committed; their pushes were refused."),
		events:      counter("events_total", "Events committed."),
		rawBytes:    counter("raw_bytes_total", "Bytes committed, before compression."),
		storedBytes: counter("stored_bytes_total", "Bytes committed, after compression."),
		notKept:     counter("mark_failures_total", "Positions of sinks that could not be written; after a kill, sinks may get more events twice."),
		distrusted:  counter("positions_distrusted_total", "Positions of sinks that could not be believed when they were opened; such a sink gets everything that is kept."),
		doubts: of.NewGauge(prometheus.GaugeOpts{
			Name: "auditrelay_journal_trim_blocked",
			Help: "1 while nothing is trimmed, as some sink's position is not known for certain; else 0.",
		}),
		overlap: of.NewCounterVec(prometheus.CounterOpts{
			Name: "auditrelay_sink_overlap_events_total",
			Help: "Events that this relay delivered before it knew that another one had taken the sink over, which delivers them again.",
		}, []string{"sink"}),
	}
	m.showOverlap(sinks)
	return m
}

// showOverlap has the overlap of some sinks shown from now on.
func (m *metrics) showOverlap(sinks []string) {
	for _, sink := range sinks {
		m.overlap.WithLabelValues(sink)
	}
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

var (
	usedDesc   = prometheus.NewDesc("auditrelay_journal_bytes", "Disk that the log of events takes.", nil, nil)
	budgetDesc = prometheus.NewDesc("auditrelay_journal_budget_bytes", "Disk that the log of events may take.", nil, nil)
	replayDesc = prometheus.NewDesc("auditrelay_journal_replay_seconds", "Age of the oldest record: how far back a replay can reach.", nil, nil)
	heldDesc   = prometheus.NewDesc("auditrelay_journal_undelivered_bytes", "Disk that events of a source take until every sink has them, about.", []string{"source"}, nil)
	fullDesc   = prometheus.NewDesc("auditrelay_journal_seconds_to_full", "Time until undelivered events fill the budget, at the rate of the last minutes; +Inf while they do not grow, NaN in the first two minutes.", nil, nil)
	lagDesc    = prometheus.NewDesc("auditrelay_sink_lag_events", "Events that the sink has not acknowledged; NaN before it is opened.", []string{"sink"}, nil)
	behindDesc = prometheus.NewDesc("auditrelay_sink_lag_seconds", "Age of the oldest event that the sink has not acknowledged; 0 without any.", []string{"sink"}, nil)
	oldestDesc = prometheus.NewDesc("auditrelay_sink_oldest_unacknowledged_timestamp_seconds", "When the oldest event was committed that the sink has not acknowledged; NaN without any.", []string{"sink"}, nil)
)

// stateTimeout bounds a look at the log for the metrics.
const stateTimeout = 2 * time.Second

// collector looks at the journal when it is scraped. While the store does not answer, what
// only it knows is NaN.
type collector struct{ j *Journal }

func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{usedDesc, budgetDesc, replayDesc, heldDesc, fullDesc, lagDesc, behindDesc, oldestDesc} {
		ch <- desc
	}
}

func (c *collector) Collect(ch chan<- prometheus.Metric) {
	gauge := func(desc *prometheus.Desc, value float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, labels...)
	}
	ctx, cancel := context.WithTimeout(context.Background(), stateTimeout)
	defer cancel()
	used, replay, budget := math.NaN(), math.NaN(), int64(c.j.cfg.MaxBytes)
	if u, err := c.j.Usage(ctx); err == nil {
		used, replay = float64(u.Bytes), u.ReplaySeconds
	}
	gauge(usedDesc, used)
	gauge(replayDesc, replay)
	gauge(budgetDesc, float64(budget))
	gauge(fullDesc, c.j.fills.secondsToFull(budget))
	held := c.j.budget.bySource()
	for _, source := range c.j.set.served.Load().sources {
		held[source] += 0 // each configured one has its series
	}
	for source, bytes := range held {
		gauge(heldDesc, float64(bytes), source)
	}
	for _, sink := range c.j.set.served.Load().sinks {
		events, age, oldest := math.NaN(), math.NaN(), math.NaN()
		if b, reading := c.j.Backlog(sink); reading {
			events, age = float64(b.Events), 0
			if b.Events > 0 {
				age, oldest = max(0, time.Since(b.Oldest).Seconds()), float64(b.Oldest.UnixMilli())/1e3
			}
		}
		gauge(lagDesc, events, sink)
		gauge(behindDesc, age, sink)
		gauge(oldestDesc, oldest, sink)
	}
}
