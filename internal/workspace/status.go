package workspace

import (
	"math"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
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

	looks, failures, unread int // unread: changes whose meaning could not be told
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

var (
	looksDesc    = settingDesc("looks_total", "Looks at a setting that were read and held against the trail.")
	failuresDesc = settingDesc("failures_total", "Looks at a setting that failed.")
	changesDesc  = settingDesc("changes_total", "Changes of a setting that were entered into the trail.")
	unreadDesc   = settingDesc("unread_changes_total", "Changes whose meaning could not be told. They are in the trail without it.")
	lastLookDesc = settingDesc("last_look_timestamp_seconds", "When the last good look at a setting ended; NaN before the first one.")
)

func settingDesc(name, help string) *prometheus.Desc {
	return prometheus.NewDesc("auditrelay_settings_"+name, help, []string{"project", "environment", "subject"}, nil)
}

// Describe implements [prometheus.Collector].
func (w *Watcher) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{looksDesc, failuresDesc, changesDesc, unreadDesc, lastLookDesc} {
		ch <- d
	}
}

// Collect implements [prometheus.Collector].
func (w *Watcher) Collect(ch chan<- prometheus.Metric) {
	for _, s := range w.Status() {
		count := func(of *prometheus.Desc, n int) {
			ch <- prometheus.MustNewConstMetric(of, prometheus.CounterValue, float64(n), s.names()...)
		}
		count(looksDesc, s.looks)
		count(failuresDesc, s.failures)
		count(changesDesc, s.Changes)
		count(unreadDesc, s.unread)
		last := math.NaN()
		if !s.LastLook.IsZero() {
			last = float64(s.LastLook.UnixNano()) / 1e9
		}
		ch <- prometheus.MustNewConstMetric(lastLookDesc, prometheus.GaugeValue, last, s.names()...)
	}
}
