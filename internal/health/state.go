// Package health judges whether each environment's event log really flows. It holds the
// API's word against the arrivals.
//
// [Judge] is pure: it gives a state with its reason, its beginning and an action. A
// [Keeper] judges every environment each second. It waits until a state has held for a
// moment, and enters transitions into the audit trail. The trail's newest entry is the
// state after a restart, so a crash at any line enters a transition once.
//
// A time without good pushes is a [Gap]. At its end, the keeper estimates the lost events
// by the environment's [Rhythm], less the late ones. A file keeps the
// rhythms and the gaps: see [FileName].
//
// The keeper only reads the counts of internal/ingest/received. It never slows a push.
package health

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/auditrelay/auditrelay/internal/workspace/meaning"
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

// row is all that sets a state apart from the others. Metrics, screens, help and the keeping of gaps
// read it from here: a further state is one more row, with a judge in the order of [judges].
type row struct {
	state    State
	hint     string // for the help, if the name alone does not tell; may be empty
	text     string // in a sentence
	severity meaning.Severity
	page     string // in the runbook; empty: none
	arriving arriving
}

// arriving is what a state says of the events that arrive.
type arriving int

const (
	unknown  arriving = iota // nothing
	inTime                   // pushes arrive, no fewer than usual, and in time
	notLost                  // pushes arrive, no fewer than usual
	missing                  // events are lost, as is seen by what arrives, and the cause is not known
	withheld                 // events are lost, and the state is the cause
)

var states = []row{
	{Flowing, "", "flows", meaning.Info, "", inTime},
	{Late, "", "is late", meaning.Medium, "EnvironmentLate", notLost},
	{Skewed, "wrong times", "has wrong times", meaning.Medium, "EnvironmentSkewed", notLost},
	{Reduced, "far fewer events than usual", "is reduced", meaning.High, "EnvironmentReduced", missing},
	{Silent, "", "is silent", meaning.High, "EnvironmentSilent", missing},
	{Refused, "", "is refused", meaning.Critical, "EnvironmentRefused", withheld},
	{Disabled, "", "is disabled", meaning.High, "EnvironmentDisabled", withheld},
	{Misdirected, "", "goes elsewhere", meaning.Critical, "EnvironmentMisdirected", withheld},
	{Gapped, "", "flows again, with a gap", meaning.Medium, "EnvironmentGap", inTime},
	{Unknown, "", "is in an unknown state", meaning.Low, "", unknown},
}

// judges decide on the state, in this order: a person mends the first trouble in it first. A stream
// cannot arrive if it goes elsewhere or nowhere, a refused one is not silent, a silent one is not
// late. Where none of them knows better, the event log flows.
var judges = []func(*Evidence, time.Time) (Verdict, bool){
	misdirected, disabled, atDestination, notHere, refused, neverSeen, reduced, silent, skewed, late, tooOld, gapped,
}

// States returns all states.
func States() (all []State) {
	for i := range states {
		all = append(all, states[i].state)
	}
	return all
}

// Help names all states for the help of a command, the last one after "or".
func Help() string {
	var names []string
	for _, s := range states {
		name := string(s.state)
		if s.hint != "" {
			name += " (" + s.hint + ")"
		}
		names = append(names, name)
	}
	last := len(names) - 1
	return strings.Join(names[:last], ", ") + " or " + names[last]
}

// known reports whether there is such a state.
func (s State) known() bool { return slices.Contains(States(), s) }

// about is the state's row. A state of a newer relay has one that says little.
func (s State) about() row {
	for _, about := range states {
		if about.state == s {
			return about
		}
	}
	return row{state: s, text: "is " + string(s), severity: meaning.High}
}

// Severity is how bad the state is: [meaning.Info] and [meaning.Low] are no trouble.
func (s State) Severity() meaning.Severity { return s.about().severity }

// good reports whether pushes arrive in time.
func (s State) good() bool { return s.about().arriving == inTime }

// arrives reports whether pushes arrive, and no fewer than usual.
func (s State) arrives() bool { return s.good() || s.about().arriving == notLost }

// ofArrivals reports whether the state is a loss seen by what arrives, without its cause.
func (s State) ofArrivals() bool { return s.about().arriving == missing }

// loses reports whether events are lost while the state lasts.
func (s State) loses() bool { return s.ofArrivals() || s.about().arriving == withheld }

// runbook is the address of the page about a state; empty: it has none.
func runbook(s State) string {
	page := s.about().page
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

	refusedBy string // of a Refused state: the reason, of internal/ingest/received
	came      int64  // since it began: the events that came all the same
}

// sentence tells a verdict in one line: "production: event log is refused since 12:03:07
// UTC: the credential is not valid".
func (v Verdict) sentence(environment string) string {
	return fmt.Sprintf("%s: event log %s since %s: %s", environment, v.State.about().text, clock(v.Since), v.Reason)
}

// clock gives a time for people.
func clock(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") }
