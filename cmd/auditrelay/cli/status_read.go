package cli

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/auditrelay/auditrelay/internal/app"
	"github.com/auditrelay/auditrelay/internal/control/admin"
	"github.com/auditrelay/auditrelay/internal/control/console"
	"github.com/auditrelay/auditrelay/internal/health"
	"github.com/auditrelay/auditrelay/internal/journal"
	"github.com/auditrelay/auditrelay/internal/trail/timeline"
	"github.com/auditrelay/auditrelay/internal/workspace/management"
	"github.com/auditrelay/auditrelay/internal/workspace/settings"
	"github.com/auditrelay/auditrelay/internal/workspace/streaming"
)

// relayStatus is the part of /status for the screen.
type relayStatus struct {
	Relay        app.About
	Ready        admin.Readiness
	Environments []health.Status
	Sinks        []console.Sink
	Journal      journal.Usage
	Streaming    []streaming.Health
	Workspace    *management.Reach // nil without a workspace
	Settings     []settings.Status
	Changes      []timeline.Row
	Trail        struct {
		Entries int64  `json:"entries"`
		State   string `json:"state"`
	}
	// unreadable has the unreadable sections by name, with the reasons.
	unreadable map[string]string
}

// fight is the fight about an environment's streaming config, or nil.
func (s *relayStatus) fight(e *health.Status) *streaming.Fight {
	for i := range s.Streaming {
		if h := &s.Streaming[i]; h.Project == e.Project && h.Environment == e.Environment {
			return h.Fight
		}
	}
	return nil
}

// missed is about how many events a gap has lost, or will have if it ends now.
func missed(g *health.Gap) float64 {
	if g.Ended.IsZero() {
		return float64(max(0, g.EventsExpected-g.EventsLate))
	}
	return float64(g.EventsLost)
}

// readStatus reads the sections. One of a newer or older relay, or with an error, does not
// hide the others.
func readStatus(sections map[string]json.RawMessage) relayStatus {
	s := relayStatus{unreadable: map[string]string{}}
	for name, into := range map[string]any{
		"relay": &s.Relay, "ready": &s.Ready, "environments": &s.Environments, "sinks": &s.Sinks, "journal": &s.Journal, "streaming": &s.Streaming,
		"workspace": &s.Workspace, "settings": &s.Settings, "changes": &s.Changes, "trail": &s.Trail,
	} {
		raw, found := sections[name]
		if !found {
			if !slices.Contains([]string{"workspace", "streaming", "settings", "changes"}, name) { // some relays have none
				s.unreadable[name] = "the relay's answer has none; is it of another version than this command?"
			}
			continue
		}
		var failed struct {
			Error string `json:"error"`
			Known *bool  `json:"known"` // only the workspace has both
		}
		if json.Unmarshal(raw, &failed) == nil && failed.Error != "" && failed.Known == nil {
			s.unreadable[name] = failed.Error
		} else if err := json.Unmarshal(raw, into); err != nil {
			s.unreadable[name] = fmt.Sprintf("this command does not understand it; is the relay of another version? %v", err)
		}
	}
	if s.Relay.Now.IsZero() {
		s.Relay.Now = time.Now()
	}
	return s
}
