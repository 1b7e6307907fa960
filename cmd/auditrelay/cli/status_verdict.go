package cli

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/auditrelay/auditrelay/internal/control/console"
	"github.com/auditrelay/auditrelay/internal/health"
	"github.com/auditrelay/auditrelay/internal/workspace/meaning"
)

// The verdicts.
const (
	verdictOK      = "ok"      // nothing is wrong
	verdictUnknown = "unknown" // nothing is known to be wrong, and not all is known
	verdictTrouble = "trouble" // something is wrong
)

const (
	// A sink lags once its oldest undelivered event has the age laggingAfter.
	laggingAfter = 5 * time.Minute
	// A journal full within fillingWithin is trouble.
	fillingWithin = 4 * time.Hour
)

// verdict is the answer to "is every event log flowing, and does every sink get it?".
type verdict struct {
	Verdict string `json:"verdict"`
	// Troubles name each trouble in a clause; Unknown names each doubt.
	Troubles []string `json:"troubles"`
	Unknown  []string `json:"unknown"`
}

// judgeStatus never counts a silenced environment as trouble.
func judgeStatus(s *relayStatus) verdict {
	v := verdict{Verdict: verdictOK, Troubles: []string{}, Unknown: []string{}}
	for _, name := range slices.Sorted(maps.Keys(s.unreadable)) {
		v.trouble("the section %s cannot be read", name)
	}
	for i := range s.Environments {
		v.environment(&s.Environments[i])
		if e := &s.Environments[i]; s.fight(e) != nil {
			v.trouble("somebody else sets the stream of %s/%s again and again", e.Project, e.Environment)
		}
	}
	for i := range s.Sinks {
		if found := sinkTrouble(&s.Sinks[i]); found != "" {
			v.trouble("sink %s %s", s.Sinks[i].Name, found)
		}
	}
	v.parts(s)
	v.workspace(s)
	switch {
	case len(v.Troubles) > 0:
		v.Verdict = verdictTrouble
	case len(v.Unknown) > 0:
		v.Verdict = verdictUnknown
	}
	return v
}

func (v *verdict) trouble(format string, args ...any) {
	v.Troubles = append(v.Troubles, fmt.Sprintf(format, args...))
}

func (v *verdict) environment(e *health.Status) {
	switch stateInk(e) {
	case inkTrouble, inkWarning:
		v.trouble("%s/%s is %s", e.Project, e.Environment, e.State)
	case inkUnknown:
		v.Unknown = append(v.Unknown, fmt.Sprintf("%s/%s is unknown", e.Project, e.Environment))
	}
}

// parts adds those without a section of their own on the screen, or not taking pushes.
func (v *verdict) parts(s *relayStatus) {
	for _, p := range s.Ready.Parts {
		switch {
		case p.State == "not_ready":
			v.trouble("pushes are refused (%s)", p.Name)
		case p.State == "warning" && !hasSection(p.Name):
			v.trouble("%s: %s", p.Name, p.Reason)
		}
	}
	if left := s.Journal.SecondsToFull; left != nil && *left < fillingWithin.Seconds() {
		v.trouble("the journal is full in %s", spanText(*left))
	}
}

// hasSection reports whether the screen judges a part of /readyz by a section.
func hasSection(part string) bool {
	return slices.Contains([]string{"sinks", "environments", "workspace", "dead letters"}, part)
}

func (v *verdict) workspace(s *relayStatus) {
	if w := s.Workspace; w != nil {
		switch {
		case w.Cause != "":
			v.trouble("the management API cannot be used (%s)", w.Cause)
		case !w.Known:
			v.Unknown = append(v.Unknown, "the management API has not been asked yet")
		}
	}
	if failing := failingSettings(s); len(failing) > 0 && (s.Workspace == nil || s.Workspace.Cause == "") {
		v.trouble("%s cannot be read", count(len(failing), "setting"))
	}
}

// line is the verdict in one line.
func (v *verdict) line(s *relayStatus) string {
	switch v.Verdict {
	case verdictTrouble:
		return "TROUBLE: " + strings.Join(v.Troubles, "; ")
	case verdictUnknown:
		return "NOT ALL IS KNOWN: " + strings.Join(v.Unknown, "; ") + "; nothing is known to be wrong"
	}
	return fmt.Sprintf("ALL WELL: %s, %s", does(len(s.Environments), "environment", "flows", "flow"), does(len(s.Sinks), "sink", "delivers", "deliver"))
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

func does(n int, what, one, many string) string {
	if n == 1 {
		many = one
	}
	return count(n, what) + " " + many
}

// stateInk is how an environment's state is judged.
func stateInk(e *health.Status) ink {
	if e.Silenced && e.State != health.Flowing {
		return inkFaint
	}
	switch e.State.Severity() {
	case meaning.Info:
		return inkGood
	case meaning.Low:
		return inkUnknown
	case meaning.Medium:
		return inkWarning
	}
	return inkTrouble
}

// sinkCondition is how the deliveries to a sink are.
type sinkCondition int

const (
	delivering sinkCondition = iota
	lagging                  // it delivers, but its oldest event has waited for long
	failing
	leftOver  // it is not configured
	abandoned // likewise, and events are kept for it
	unplaced  // its position is not known
)

var sinkTexts = [...]inked{
	delivering: {"delivers", inkGood}, lagging: {"lags", inkTrouble}, failing: {"fails", inkTrouble},
	leftOver: {"left over", inkFaint}, abandoned: {"left over", inkTrouble}, unplaced: {"unknown", inkTrouble},
}

func conditionOf(s *console.Sink) sinkCondition {
	lag := time.Duration(s.LagSeconds * float64(time.Second))
	switch {
	case s.Position != nil && s.Position.Unknown != "":
		return unplaced
	case !s.Configured && s.Position != nil && s.Position.Pending > 0:
		return abandoned
	case !s.Configured:
		return leftOver
	case s.Delivery != nil && !s.FailingSince.IsZero():
		return failing
	case lag >= laggingAfter:
		return lagging
	}
	return delivering
}

// sinkTrouble is a clause about a sink in trouble, else empty.
func sinkTrouble(s *console.Sink) string {
	switch c := conditionOf(s); {
	case c == unplaced:
		return "has no known position"
	case c == abandoned:
		return "is not configured, and holds events"
	case c == lagging, c == failing:
		return sinkTexts[c].text
	case s.DeadLetters > 0:
		return "has " + count(int(s.DeadLetters), "dead letter")
	}
	return ""
}
