package health

import (
	"math"
	"time"

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
		Project: w.name.Project, Environment: w.name.Environment, Mode: w.mode(), Destination: w.destination(),
		State: v.State, Reason: v.Reason, Since: v.Since, Action: v.Action,
		Declared: w.declaredStatus(now), Observed: w.observedStatus(now),
		Gaps: w.gaps.told(), lost: w.gaps.lost, unreviewed: w.gaps.unreviewed(now), events: w.arrivals.Events, latenessSum: w.arrivals.LatenessSum,
	}
	if s.State == "" { // not judged yet
		s.State, s.Reason = Unknown, "the relay has just started"
	}
	if p := w.gaps.Open; p != nil {
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
	case w.here:
		return "relay"
	case s != nil && s.Datadog != nil, w.declared.DestinationType == management.Datadog:
		return "datadog"
	case s != nil && s.GrafanaLoki != nil, w.declared.DestinationType == management.GrafanaLoki:
		return "grafana_loki"
	}
	return "none"
}

func (w *watch) declaredStatus(now time.Time) DeclaredStatus {
	d := &w.declared
	return DeclaredStatus{
		Status: d.Status, DestinationType: d.DestinationType, Destination: d.Destination, At: d.LastLook,
		Stale: d.stale(w.started, now), Finding: d.Finding, Differs: append([]string{}, d.Differs...), LastError: d.LastError,
	}
}

func (w *watch) observedStatus(now time.Time) ObservedStatus {
	a := &w.arrivals
	o := ObservedStatus{
		LastPush: w.LastPush, LastEvent: a.LastEvent, EventsPerSecond: a.EventsPerSecond,
		Lateness: Lateness{known(a.Lateness[0]), known(a.Lateness[1]), known(a.Lateness[2])},
		Refusals: map[string]received.Refusals{}, ClockBehindSeconds: w.Skew.Round(time.Second).Seconds(),
	}
	if expected := w.model.Expected(now, now.Add(time.Hour)); expected > 0 {
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
		Summary: v.sentence(w.name.Environment), Severity: v.State.Severity(), To: v.State, Reason: v.Reason, Action: v.Action,
		Runbook: runbook(v.State), Since: v.Since, Skipped: w.held.skipped, Declared: w.declaredStatus(now), Observed: w.observedStatus(now),
	}
	if !w.here && w.mode() == config.ModeObserve && v.State == Disabled {
		c.Severity = meaning.Low
	}
	return c
}
