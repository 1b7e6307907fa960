package workspace

import (
	"math"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// SettingStatus is how it stands with one setting, since this process started.
type SettingStatus struct {
	Project     string `json:"project"`
	Environment string `json:"environment,omitempty"`
	Subject     string `json:"subject"`
	// LastLook is when the last good look ended; zero where there was none.
	LastLook time.Time `json:"last_look,omitzero"`
	// Changes counts the entered changes; LastChange is when the last of them was seen.
	Changes    int       `json:"changes"`
	LastChange time.Time `json:"last_change,omitzero"`
	// Error is why the last look failed; empty where it did not.
	Error       string    `json:"error,omitempty"`
	LastFailure time.Time `json:"last_failure,omitzero"`
}

// Status returns the settings' status, ordered by project, environment and
// subject.
func (w *Watcher) Status() []SettingStatus {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := make([]SettingStatus, 0, len(w.status))
	for _, s := range w.status {
		all = append(all, *s)
	}
	slices.SortFunc(all, func(a, b SettingStatus) int {
		return slices.CompareFunc(a.names(), b.names(), strings.Compare)
	})
	return all
}

func (s SettingStatus) names() []string { return []string{s.Project, s.Environment, s.Subject} }

func (w *Watcher) note(r resource, change func(*SettingStatus)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change(w.status[r])
}

type metrics struct {
	looks, failures, changes, unreadable *prometheus.CounterVec
	lastLook                             *prometheus.GaugeVec
}

// newMetrics registers with r, unless r is nil.
func newMetrics(r prometheus.Registerer) *metrics {
	labels := []string{"project", "environment", "subject"}
	register := promauto.With(r)
	counter := func(name, help string) *prometheus.CounterVec {
		return register.NewCounterVec(prometheus.CounterOpts{Name: "auditrelay_settings_" + name, Help: help}, labels)
	}
	return &metrics{
		looks:      counter("looks_total", "Looks at a setting that were read and held against the trail."),
		failures:   counter("failures_total", "Looks at a setting that failed."),
		changes:    counter("changes_total", "Changes of a setting that were entered into the trail."),
		unreadable: counter("unread_changes_total", "Changes whose meaning could not be told. They are in the trail without it."),
		lastLook: register.NewGaugeVec(prometheus.GaugeOpts{
			Name: "auditrelay_settings_last_look_timestamp_seconds", Help: "When the last good look at a setting ended; NaN before the first one.",
		}, labels),
	}
}

// begin makes a setting's series.
func (m *metrics) begin(r resource) {
	for _, c := range []*prometheus.CounterVec{m.looks, m.failures, m.changes, m.unreadable} {
		c.WithLabelValues(labelsOf(r)...)
	}
	m.lastLook.WithLabelValues(labelsOf(r)...).Set(math.NaN())
}

func labelsOf(r resource) []string { return []string{r.project, r.environment, r.kind} }

func (m *metrics) looked(r resource, at time.Time) {
	m.looks.WithLabelValues(labelsOf(r)...).Inc()
	m.lastLook.WithLabelValues(labelsOf(r)...).Set(float64(at.UnixNano()) / 1e9)
}

func (m *metrics) failed(r resource)  { m.failures.WithLabelValues(labelsOf(r)...).Inc() }
func (m *metrics) unread(r resource)  { m.unreadable.WithLabelValues(labelsOf(r)...).Inc() }
func (m *metrics) changed(r resource) { m.changes.WithLabelValues(labelsOf(r)...).Inc() }
