package health

import (
	"math"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/ingest/received"
	"github.com/auditrelay/auditrelay/internal/workspace/management"
	"github.com/auditrelay/auditrelay/internal/workspace/meaning"
	"github.com/auditrelay/auditrelay/internal/workspace/streaming"
)

// Status is an environment in /status.
type Status struct {
	Project     string `json:"project"`
	Environment string `json:"environment"`
	// Mode is enforce or observe.
	Mode string `json:"mode"`
	// Destination is where the event log is to go: relay, datadog, grafana_loki; or none,
	// where nothing is configured.
	Destination string    `json:"destination"`
	State       State     `json:"state"`
	Reason      string    `json:"reason"`
	Since       time.Time `json:"since,omitzero"`
	Action      string    `json:"action"`
	Silenced    bool      `json:"silenced"`

	Declared DeclaredStatus `json:"declared"`
	Observed ObservedStatus `json:"observed"`
	// EventsByMinute are the numbers of events that arrived in each of the last 60 whole minutes, the
	// oldest first. There are fewer in the first hour of a run.
	EventsByMinute []int64 `json:"events_by_minute"`
	// Gap is the open one; nil: none. Gaps are the last ten with an end.
	Gap  *Gap  `json:"gap"`
	Gaps []Gap `json:"gaps"`

	lost, events int64
	unreviewed   int
	latenessSum  float64 // of the events
}

// DeclaredStatus is the API's word.
type DeclaredStatus struct {
	Status          management.StreamingStatus `json:"status"`
	DestinationType management.DestinationType `json:"destination_type"`
	Destination     string                     `json:"destination,omitempty"`
	At              time.Time                  `json:"at,omitzero"`
	// Stale: the last look is older than three intervals.
	Stale     bool              `json:"stale"`
	Finding   streaming.Finding `json:"finding"`
	Differs   []string          `json:"differs"`
	LastError string            `json:"last_error"`
}

// ObservedStatus is about the arrivals. A nil number is not known.
type ObservedStatus struct {
	LastPush                time.Time `json:"last_push,omitzero"`
	LastEvent               time.Time `json:"last_event,omitzero"`
	EventsPerSecond         float64   `json:"events_per_second"`
	ExpectedEventsPerSecond *float64  `json:"expected_events_per_second"`
	Lateness                Lateness  `json:"lateness_seconds"`
	// ClockBehindSeconds is how far the sender's clock is behind; below 0: ahead; 0: it seems
	// right.
	ClockBehindSeconds float64                      `json:"clock_behind_seconds"`
	Refusals           map[string]received.Refusals `json:"refusals"`
}

// Lateness has the percentiles of arrival minus event time over ten minutes, in seconds.
type Lateness struct {
	P50 *float64 `json:"p50"`
	P90 *float64 `json:"p90"`
	P99 *float64 `json:"p99"`
}

// Status returns the state of each environment, in the order of the configuration.
func (k *Keeper) Status() []Status {
	now := time.Now()
	k.mu.Lock()
	defer k.mu.Unlock()
	all := make([]Status, 0, len(k.watches))
	for _, w := range k.watches {
		s := w.status(now)
		s.Silenced = k.silenced(w) != ""
		all = append(all, s)
	}
	return all
}

func (w *watch) status(now time.Time) Status {
	v := w.held.verdict
	s := Status{
		Project: w.Environment.Project, Environment: w.Environment.Environment, Mode: w.mode(), Destination: w.destination(),
		State: v.State, Reason: v.Reason, Since: v.Since, Action: v.Action,
		Declared: w.declaredStatus(now), Observed: w.observedStatus(now), EventsByMinute: w.hour.whole(),
		Gaps: w.told(), lost: w.lost, unreviewed: w.unreviewed(now), events: w.Arrivals.Events, latenessSum: w.Arrivals.LatenessSum,
	}
	if s.State == "" { // not judged yet
		s.State, s.Reason = Unknown, "the relay has just started"
	}
	if p := w.Open; p != nil {
		open := p.Gap
		s.Gap = &open
	}
	return s
}

func (w *watch) mode() string {
	if w.env.Stream == nil || w.env.Stream.Observe || w.env.Mode == config.ModeObserve {
		return config.ModeObserve
	}
	return config.ModeEnforce
}

// destination is where the events are to go, as configured; else where the API shows them.
func (w *watch) destination() string {
	switch s := w.env.Stream; {
	case w.Here:
		return "relay"
	case s != nil && s.Datadog != nil, w.Declared.DestinationType == management.Datadog:
		return "datadog"
	case s != nil && s.GrafanaLoki != nil, w.Declared.DestinationType == management.GrafanaLoki:
		return "grafana_loki"
	}
	return "none"
}

func (w *watch) declaredStatus(now time.Time) DeclaredStatus {
	d := &w.Declared
	return DeclaredStatus{
		Status: d.Status, DestinationType: d.DestinationType, Destination: d.Destination, At: d.LastLook,
		Stale: d.stale(w.Started, now), Finding: d.Finding, Differs: append([]string{}, d.Differs...), LastError: d.LastError,
	}
}

func (w *watch) observedStatus(now time.Time) ObservedStatus {
	a := &w.Arrivals
	o := ObservedStatus{
		LastPush: w.LastPush, LastEvent: a.LastEvent, EventsPerSecond: a.EventsPerSecond,
		Lateness: Lateness{known(a.Lateness[0]), known(a.Lateness[1]), known(a.Lateness[2])},
		Refusals: map[string]received.Refusals{}, ClockBehindSeconds: w.Skew.Round(time.Second).Seconds(),
	}
	if expected := w.Model.Expected(now, now.Add(time.Hour)); expected > 0 {
		o.ExpectedEventsPerSecond = known(expected / time.Hour.Seconds())
	}
	for reason, r := range a.Refusals {
		if r.Count > 0 {
			o.Refusals[reason] = r
		}
	}
	return o
}

// known is nil for NaN.
func known(v float64) *float64 {
	if math.IsNaN(v) {
		return nil
	}
	return &v
}

// change is the detail of an entry for the present state.
func (w *watch) change() change {
	v, now := w.held.verdict, time.Now()
	c := change{
		Summary: v.sentence(w.Environment.Environment), Severity: v.State.Severity(), To: v.State, Reason: v.Reason, Action: v.Action,
		Runbook: runbook(v.State), Since: v.Since, Skipped: w.held.skipped, Declared: w.declaredStatus(now), Observed: w.observedStatus(now),
	}
	if !w.Here && w.mode() == config.ModeObserve && v.State == Disabled {
		c.Severity = meaning.Low
	}
	return c
}

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
	{describe("declared_stale", "1 where the API's word on the stream is older than three intervals, else 0."), gauge, func(s *Status) float64 { return oneIf[s.Declared.Stale] }},
	{describe("clock_behind_seconds", "How far the sender's clock is behind; below 0: ahead; 0 where it seems right."), gauge, func(s *Status) float64 { return s.Observed.ClockBehindSeconds }},
	{describe("gaps_unreviewed", "Settled gaps of the last 24 hours whose entry in the trail nobody has annotated."), gauge, func(s *Status) float64 { return float64(s.unreviewed) }},
	{describe("silenced", "1 while a silence of the environment is active, else 0."), gauge, func(s *Status) float64 { return oneIf[s.Silenced] }},
}

const gauge = prometheus.GaugeValue

// Describe implements prometheus.Collector.
func (c collector) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(c, ch) }

// Collect implements prometheus.Collector.
func (c collector) Collect(ch chan<- prometheus.Metric) {
	for _, s := range c.keeper.Status() {
		for _, m := range numbers {
			ch <- prometheus.MustNewConstMetric(m.desc, m.kind, m.of(&s), s.Project, s.Environment)
		}
		for _, state := range States() {
			ch <- prometheus.MustNewConstMetric(stateDesc, gauge, oneIf[s.State == state], s.Project, s.Environment, string(state))
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

var oneIf = map[bool]float64{true: 1}

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
