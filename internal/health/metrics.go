package health

import (
	"math"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/auditrelay/auditrelay/internal/ingest/received"
)

// collector gives the metrics of all environments, each series from the start.
type collector struct {
	keeper *Keeper

	state, since, lastPush, lastEvent, lateness, rate, expected, refused, lost, stale, silenced, behind, unreviewed *prometheus.Desc
}

func newCollector(k *Keeper) *collector {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("auditrelay_environment_"+name, help, append([]string{"project", "environment"}, labels...), nil)
	}
	return &collector{
		keeper:     k,
		state:      desc("state", "1 for the environment's present state, 0 for the others.", "state"),
		since:      desc("state_since_timestamp_seconds", "When the present state began; NaN before it is known."),
		lastPush:   desc("last_push_timestamp_seconds", "When a push of the environment was last taken; NaN: never."),
		lastEvent:  desc("last_event_timestamp_seconds", "The newest time of an event, by its sender's word; NaN: none in this run."),
		lateness:   desc("lateness_seconds", "Arrival minus event time: its quantiles over the last ten minutes, NaN without events."),
		rate:       desc("events_per_second", "Events that arrived, as the mean of the last minute."),
		expected:   desc("expected_events_per_second", "Events usual for the next hour; NaN before it is learnt."),
		refused:    desc("refused_pushes_total", "Refused pushes of the environment, by reason.", "reason"),
		lost:       desc("lost_events_estimate_total", "Estimated events lost in gaps that have ended."),
		stale:      desc("declared_stale", "1 where the API's word on the stream is older than three intervals, else 0."),
		behind:     desc("clock_behind_seconds", "How far the sender's clock is behind; below 0: ahead; 0 where it seems right."),
		unreviewed: desc("gaps_unreviewed", "Settled gaps of the last 24 hours whose entry in the trail nobody has annotated."),
		silenced:   desc("silenced", "1 while a silence of the environment is active, else 0."),
	}
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.state, c.since, c.lastPush, c.lastEvent, c.lateness, c.rate, c.expected, c.refused, c.lost, c.stale, c.silenced, c.behind, c.unreviewed} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	for _, s := range c.keeper.Status() {
		give := func(d *prometheus.Desc, kind prometheus.ValueType, v float64, more ...string) {
			ch <- prometheus.MustNewConstMetric(d, kind, v, append([]string{s.Project, s.Environment}, more...)...)
		}
		gauge := func(d *prometheus.Desc, v float64, more ...string) { give(d, prometheus.GaugeValue, v, more...) }
		for _, state := range States() {
			gauge(c.state, flag(s.State == state), string(state))
		}
		o := &s.Observed
		gauge(c.since, unix(s.Since))
		gauge(c.lastPush, unix(o.LastPush))
		gauge(c.lastEvent, unix(o.LastEvent))
		ch <- prometheus.MustNewConstSummary(c.lateness, uint64(s.events), s.latenessSum, map[float64]float64{
			.5: orNaN(o.Lateness.P50), .9: orNaN(o.Lateness.P90), .99: orNaN(o.Lateness.P99),
		}, s.Project, s.Environment)
		gauge(c.rate, o.EventsPerSecond)
		gauge(c.expected, orNaN(o.ExpectedEventsPerSecond))
		gauge(c.stale, flag(s.Declared.Stale))
		gauge(c.silenced, flag(s.Silenced))
		gauge(c.unreviewed, float64(s.unreviewed))
		gauge(c.behind, o.ClockBehindSeconds)
		give(c.lost, prometheus.CounterValue, float64(s.lost))
		for _, reason := range received.Reasons() {
			give(c.refused, prometheus.CounterValue, float64(o.Refusals[reason].Count), reason)
		}
	}
}

func flag(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}

// unix gives a time in seconds, NaN for none.
func unix(t time.Time) float64 {
	if t.IsZero() {
		return math.NaN()
	}
	return float64(t.UnixMilli()) / 1000
}

func orNaN(v *float64) float64 {
	if v == nil {
		return math.NaN()
	}
	return *v
}
