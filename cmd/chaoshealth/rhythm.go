package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"time"

	"github.com/auditrelay/auditrelay/internal/health"
)

// learnt is the time of watching before an incident.
const learnt = 4 * 7 * 24 * time.Hour

// busyWeeks has the relay know four weeks of even traffic.
func busyWeeks(s *stage) error { return s.teach(func(time.Time) bool { return true }) }

// quietNights has it know four weeks with a quiet night around this hour of the day.
func quietNights(s *stage) error {
	now := time.Now()
	return s.teach(func(at time.Time) bool {
		apart := at.Sub(now).Abs() % (24 * time.Hour)
		return min(apart, 24*time.Hour-apart) > 5*time.Hour
	})
}

// teach writes the file of learnt rhythms. A busy second has the events of the stage's rate; of
// the other seconds, one in 20 minutes has one event.
func (s *stage) teach(busy func(time.Time) bool) error {
	m := &health.Rhythm{}
	now := time.Now()
	for last := now.Add(-learnt); last.Before(now); {
		next, events := last.Add(time.Second), int64(rate)
		if !busy(next) {
			next, events = last.Add(20*time.Minute), 1
		}
		m.Observe(last, next, events, 1)
		last = next
	}
	file := map[string]any{"saved": now, "environments": map[string]any{s.project + "/" + s.environment: map[string]any{"model": m}}}
	raw, err := json.Marshal(file)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(s.relay.DataDir(), health.FileName), raw, 0o600)
}
