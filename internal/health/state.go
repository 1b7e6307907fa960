package health

import (
	"fmt"
	"slices"
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
	// Skewed: the sender's clock is wrong, so the times of its events are.
	Skewed State = "skewed"
	// Reduced: pushes arrive with far fewer events than is usual at this hour of the week.
	Reduced State = "reduced"
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

// states has what there is to say of each state. Metrics, screens and help read it.
var states = []struct {
	state    State
	text     string // in a sentence
	severity meaning.Severity
	page     string // in the runbook; empty: none
}{
	{Flowing, "flows", meaning.Info, ""},
	{Late, "is late", meaning.Medium, "EnvironmentLate"},
	{Skewed, "has wrong times", meaning.Medium, "EnvironmentSkewed"},
	{Reduced, "is reduced", meaning.High, "EnvironmentReduced"},
	{Silent, "is silent", meaning.High, "EnvironmentSilent"},
	{Refused, "is refused", meaning.Critical, "EnvironmentRefused"},
	{Disabled, "is disabled", meaning.High, "EnvironmentDisabled"},
	{Misdirected, "goes elsewhere", meaning.Critical, "EnvironmentMisdirected"},
	{Gapped, "flows again, with a gap", meaning.Medium, "EnvironmentGap"},
	{Unknown, "is in an unknown state", meaning.Low, ""},
}

// States returns all states.
func States() (all []State) {
	for i := range states {
		all = append(all, states[i].state)
	}
	return all
}

// known reports whether there is such a state.
func (s State) known() bool { return slices.Contains(States(), s) }

// about gives the state in a sentence, its severity and its page.
func (s State) about() (text string, severity meaning.Severity, page string) {
	for i := range states {
		if x := &states[i]; x.state == s {
			return x.text, x.severity, x.page
		}
	}
	return "is " + string(s), meaning.High, "" // of a newer relay
}

// Severity is how bad the state is: [meaning.Info] and [meaning.Low] are no trouble.
func (s State) Severity() meaning.Severity {
	_, severity, _ := s.about()
	return severity
}

// good reports whether pushes arrive in time.
func (s State) good() bool { return s == Flowing || s == Gapped }

// arrives reports whether pushes arrive, and no fewer than usual.
func (s State) arrives() bool { return s.good() || s == Late || s == Skewed }

// ofArrivals reports whether the state is a loss seen by what arrives, without its cause.
func (s State) ofArrivals() bool { return s == Silent || s == Reduced }

// loses reports whether events are lost while the state lasts.
func (s State) loses() bool {
	return s.ofArrivals() || s == Refused || s == Disabled || s == Misdirected
}

// runbook is the address of the page about a state; empty: it has none.
func runbook(s State) string {
	_, _, page := s.about()
	if page == "" {
		return ""
	}
	return "https://github.com/auditrelay/auditrelay/blob/main/deploy/prometheus/runbook/" + page + ".md"
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
	came      int64  // of a Reduced state: the events that came all the same
}

// sentence tells a verdict in one line: "production: event log is refused since 12:03:07
// UTC: the credential is not valid".
func (v Verdict) sentence(environment string) string {
	text, _, _ := v.State.about()
	return fmt.Sprintf("%s: event log %s since %s: %s", environment, text, clock(v.Since), v.Reason)
}

// clock gives a time for people.
func clock(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") }
