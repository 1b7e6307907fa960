package health

import (
	"math"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/auditrelay/auditrelay/internal/ingest/received"
)

// collector gives the metrics of all environments, each series from the start.
type collector struct{ keeper *Keeper }

func describe(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("auditrelay_environment_"+name, help, append([]string{"project", "environment"}, labels...), nil)
}

// The metrics with further labels, and the one with quantiles.
var (
	stateDesc    = describe("state", "1 for the environment's present state, 0 for the others.", "state")
	refusedDesc  = describe("refused_pushes_total", "Refused pushes of the environment, by reason.", "reason")
	latenessDesc = describe("lateness_seconds", "Arrival minus event time: its quantiles over the last ten minutes, NaN without events.")
)

// numbers are the metrics with one series for each environment.
var numbers = []struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
	of   func(*Status) float64
}{
	{describe("state_since_timestamp_seconds", "When the present state began; NaN before it is known."), gauge, func(s *Status) float64 { return unix(s.Since) }},
	{describe("last_push_timestamp_seconds", "When a push of the environment was last taken; NaN: never."), gauge, func(s *Status) float64 { return unix(s.Observed.LastPush) }},
	{describe("last_event_timestamp_seconds", "The newest time of an event, by its sender's word; NaN: none in this run."), gauge, func(s *Status) float64 { return unix(s.Observed.LastEvent) }},
	{describe("events_per_second", "Events that arrived, as the mean of the last minute."), gauge, func(s *Status) float64 { return s.Observed.EventsPerSecond }},
	{describe("expected_events_per_second", "Events usual for the next hour; NaN before it is learnt."), gauge, func(s *Status) float64 { return orNaN(s.Observed.ExpectedEventsPerSecond) }},
	{describe("lost_events_estimate_total", "Estimated events lost in gaps that have ended."), prometheus.CounterValue, func(s *Status) float64 { return float64(s.lost) }},
	{describe("declared_stale", "1 where the API's word on the stream is older than three intervals, else 0."), gauge, func(s *Status) float64 { return flag[s.Declared.Stale] }},
	{describe("clock_behind_seconds", "How far the sender's clock is behind; below 0: ahead; 0 where it seems right."), gauge, func(s *Status) float64 { return s.Observed.ClockBehindSeconds }},
	{describe("gaps_unreviewed", "Settled gaps of the last 24 hours whose entry in the trail nobody has annotated."), gauge, func(s *Status) float64 { return float64(s.unreviewed) }},
	{describe("silenced", "1 while a silence of the environment is active, else 0."), gauge, func(s *Status) float64 { return flag[s.Silenced] }},
}

const gauge = prometheus.GaugeValue

// Describe implements prometheus.Collector.
func (c collector) Describe(ch chan<- *prometheus.Desc) {
	for _, m := range numbers {
		ch <- m.desc
	}
	ch <- stateDesc
	ch <- refusedDesc
	ch <- latenessDesc
}

// Collect implements prometheus.Collector.
func (c collector) Collect(ch chan<- prometheus.Metric) {
	for _, s := range c.keeper.Status() {
		for _, m := range numbers {
			ch <- prometheus.MustNewConstMetric(m.desc, m.kind, m.of(&s), s.Project, s.Environment)
		}
		for _, state := range States() {
			ch <- prometheus.MustNewConstMetric(stateDesc, gauge, flag[s.State == state], s.Project, s.Environment, string(state))
		}
		for _, reason := range received.Reasons() {
			n := float64(s.Observed.Refusals[reason].Count)
			ch <- prometheus.MustNewConstMetric(refusedDesc, prometheus.CounterValue, n, s.Project, s.Environment, reason)
		}
		late := s.Observed.Lateness
		ch <- prometheus.MustNewConstSummary(latenessDesc, uint64(s.events), s.latenessSum,
			map[float64]float64{.5: orNaN(late.P50), .9: orNaN(late.P90), .99: orNaN(late.P99)}, s.Project, s.Environment)
	}
}

var flag = map[bool]float64{true: 1}

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
