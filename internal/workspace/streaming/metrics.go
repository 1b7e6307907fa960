package streaming

import (
	"math"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/workspace"
	"github.com/auditrelay/auditrelay/internal/workspace/management"
)

type metrics struct {
	looks    *prometheus.CounterVec // by result
	puts     *prometheus.CounterVec // by result
	changes  *prometheus.CounterVec // by environment, type and cause
	active   *prometheus.GaugeVec   // by environment
	matches  *prometheus.GaugeVec   // by environment
	lastLook *prometheus.GaugeVec   // by environment
	fight    *prometheus.GaugeVec   // by environment
	unread   prometheus.Counter
}

// newMetrics makes every series at once: an alert on a missing one would never fire. It registers
// them with r, unless r is nil.
func newMetrics(r prometheus.Registerer, environments []config.Environment) *metrics {
	register, of := promauto.With(r), []string{"project", "environment"}
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return register.NewCounterVec(prometheus.CounterOpts{Namespace: "auditrelay", Subsystem: "streaming", Name: name, Help: help}, labels)
	}
	gauge := func(name, help string) *prometheus.GaugeVec {
		return register.NewGaugeVec(prometheus.GaugeOpts{Namespace: "auditrelay", Subsystem: "streaming", Name: name, Help: help}, of)
	}
	m := &metrics{
		looks: counter("looks_total", "Looks at an environment's streaming config, by result (ok, error).", "result"),
		puts:  counter("puts_total", "Streaming configs set, by result (ok, error).", "result"),
		changes: counter("changes_total", "Entries added to the audit trail, by type, and by cause of the change (relay, outside; empty: there was none).",
			append(of, "type", "cause")...),
		active:   gauge("declared_active", "1 where the API declares the stream ACTIVE, else 0; NaN where it is not known, or nothing is desired."),
		matches:  gauge("as_desired", "1 where the streaming config is as desired, else 0; NaN where it is not known, or nothing is desired."),
		fight:    gauge("fight", "1 while somebody else sets the streaming config again and again, else 0."),
		unread:   counter("unread_changes_total", "Changes whose meaning could not be told. They are in the trail without it.").WithLabelValues(),
		lastLook: gauge("last_look_timestamp_seconds", "When the streaming config was last read; NaN: not by this process."),
	}
	m.begin(environments)
	return m
}

func (m *metrics) begin(environments []config.Environment) {
	for _, v := range []*prometheus.CounterVec{m.looks, m.puts} {
		v.WithLabelValues(result(nil))
		v.WithLabelValues(resultError)
	}
	for _, e := range environments {
		for _, kind := range []string{TypeBaseline, TypeRestated} {
			m.changes.WithLabelValues(e.Project, e.Environment, kind, "")
		}
		for _, cause := range []string{workspace.CauseRelay, workspace.CauseOutside} {
			m.changes.WithLabelValues(e.Project, e.Environment, TypeChanged, cause)
		}
		m.changes.WithLabelValues(e.Project, e.Environment, TypeStatusChanged, workspace.CauseOutside)
		for _, g := range []*prometheus.GaugeVec{m.active, m.matches, m.lastLook} {
			g.WithLabelValues(e.Project, e.Environment).Set(math.NaN())
		}
		m.fights(e, false)
	}
}

var flag = map[bool]float64{true: 1}

func (m *metrics) saw(env config.Environment, o observation, f Finding, observed bool) {
	m.lastLook.WithLabelValues(env.Project, env.Environment).Set(float64(o.at.UnixMilli()) / 1000)
	m.is(env, o.status == management.StatusActive, f == FindingNone || f == FindingNotActive, observed)
}

// absent notes a missing environment.
func (m *metrics) absent(env config.Environment, observed bool) { m.is(env, false, false, observed) }

func (m *metrics) is(env config.Environment, active, matches, observed bool) {
	if observed {
		return // nothing is desired of it
	}
	m.active.WithLabelValues(env.Project, env.Environment).Set(flag[active])
	m.matches.WithLabelValues(env.Project, env.Environment).Set(flag[matches])
}

func (m *metrics) fights(env config.Environment, yes bool) {
	m.fight.WithLabelValues(env.Project, env.Environment).Set(flag[yes])
}

func (m *metrics) looked(err error) { m.looks.WithLabelValues(result(err)).Inc() }
func (m *metrics) wasPut(err error) { m.puts.WithLabelValues(result(err)).Inc() }

const resultError = "error"

func result(err error) string {
	if err != nil {
		return resultError
	}
	return "ok"
}
