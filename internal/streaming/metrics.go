package streaming

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/management"
)

type metrics struct {
	looks    *prometheus.CounterVec // by result
	puts     *prometheus.CounterVec // by result
	changes  *prometheus.CounterVec // by type
	active   *prometheus.GaugeVec   // by environment
	matches  *prometheus.GaugeVec   // by environment
	lastLook *prometheus.GaugeVec   // by environment
	unread   prometheus.Counter
}

func newMetrics(r prometheus.Registerer) (*metrics, error) {
	counter := func(name, help, label string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: "auditrelay", Subsystem: "streaming", Name: name, Help: help,
		}, []string{label})
	}
	gauge := func(name, help string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Namespace: "auditrelay", Subsystem: "streaming", Name: name, Help: help,
		}, []string{"project", "environment"})
	}
	m := &metrics{
		looks:   counter("looks_total", "Looks at an environment's streaming config, by result (ok, error).", "result"),
		puts:    counter("puts_total", "Streaming configs set, by result (ok, error).", "result"),
		changes: counter("changes_total", "Entries added to the audit trail, by type.", "type"),
		active:  gauge("declared_active", "1 where the API declares the stream ACTIVE, else 0."),
		matches: gauge("as_desired", "1 where the streaming config is as desired, else 0."),
		unread: prometheus.NewCounter(prometheus.CounterOpts{
			Namespace: "auditrelay", Subsystem: "streaming", Name: "unread_changes_total",
			Help: "Changes whose meaning could not be told. They are in the trail without it.",
		}),
		lastLook: gauge("last_look_timestamp_seconds", "When the streaming config was last read."),
	}
	if r == nil {
		return m, nil
	}
	return m, errors.Join(r.Register(m.looks), r.Register(m.puts), r.Register(m.changes),
		r.Register(m.active), r.Register(m.matches), r.Register(m.lastLook), r.Register(m.unread))
}

func (m *metrics) saw(env config.Environment, o observation, f Finding, observed bool) {
	set := func(g *prometheus.GaugeVec, v float64) { g.WithLabelValues(env.Project, env.Environment).Set(v) }
	set(m.lastLook, float64(o.at.UnixMilli())/1000)
	if observed {
		return // nothing is desired of it
	}
	flag := map[bool]float64{true: 1}
	set(m.active, flag[o.status == management.StatusActive])
	set(m.matches, flag[f == FindingNone || f == FindingNotActive])
}

func (m *metrics) looked(err error) { m.looks.WithLabelValues(result(err)).Inc() }
func (m *metrics) wasPut(err error) { m.puts.WithLabelValues(result(err)).Inc() }

func result(err error) string {
	if err != nil {
		return "error"
	}
	return "ok"
}
