package health

import (
	"fmt"
	"strings"
	"time"

	"github.com/auditrelay/auditrelay/internal/meaning"
)

// State is how an environment's event log does.
type State string

// The states.
const (
	// Flowing: good pushes arrive, as is usual for the environment.
	Flowing State = "flowing"
	// Late: events arrive long after they happened.
	Late State = "late"
	// Silent: nothing arrives, for longer than is usual at this hour of the week.
	Silent State = "silent"
	// Refused: the relay refuses the environment's pushes.
	Refused State = "refused"
	// Disabled: the API declares the stream not ACTIVE, or has none.
	Disabled State = "disabled"
	// Misdirected: the API shows another destination than the configured one.
	Misdirected State = "misdirected"
	// Gapped: it flows again, and events were lost within the last day.
	Gapped State = "gapped"
	// Unknown: nothing was seen yet, all evidence is too old, or the events do not
	// pass here.
	Unknown State = "unknown"
)

// States returns all states.
func States() []State {
	return []State{Flowing, Late, Silent, Refused, Disabled, Misdirected, Gapped, Unknown}
}

// good reports whether pushes arrive in time.
func (s State) good() bool { return s == Flowing || s == Gapped }

// arrives reports whether pushes arrive.
func (s State) arrives() bool { return s.good() || s == Late }

// loses reports whether events are lost while the state lasts.
func (s State) loses() bool {
	return s == Silent || s == Refused || s == Disabled || s == Misdirected
}

// says gives the state in a sentence, its severity included.
var says = map[State]struct {
	text     string
	severity meaning.Severity
}{
	Flowing:     {"flows", meaning.Info},
	Late:        {"is late", meaning.Medium},
	Silent:      {"is silent", meaning.High},
	Refused:     {"is refused", meaning.Critical},
	Disabled:    {"is disabled", meaning.High},
	Misdirected: {"goes elsewhere", meaning.Critical},
	Gapped:      {"flows again, with a gap", meaning.Medium},
	Unknown:     {"is in an unknown state", meaning.Low},
}

// runbook is the address of the page about a state; empty: it has none.
func runbook(s State) string {
	if s == Flowing || s == Unknown {
		return ""
	}
	page := strings.ToUpper(string(s[:1])) + string(s[1:])
	if s == Gapped {
		page = "Gap"
	}
	return "https://github.com/auditrelay/auditrelay/blob/main/deploy/prometheus/runbook/Environment" + page + ".md"
}

// Verdict is a state of an environment.
type Verdict struct {
	State State
	// Reason says why, in plain words.
	Reason string
	// Since is when it began; zero: when it was first judged so.
	Since time.Time
	// Action tells a person how to mend it; empty: there is nothing to do.
	Action string

	refusedBy string // of a Refused state: the reason, of internal/arrivals
}

// sentence tells a verdict in one line: "production: event log is refused since 12:03:07
// UTC: the credential is not valid".
func (v Verdict) sentence(environment string) string {
	return fmt.Sprintf("%s: event log %s since %s: %s", environment, says[v.State].text, clock(v.Since), v.Reason)
}

// clock gives a time for people.
func clock(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") }
