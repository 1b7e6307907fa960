package console

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/auditrelay/auditrelay/internal/control/admin"
	"github.com/auditrelay/auditrelay/internal/health"
	"github.com/auditrelay/auditrelay/internal/journal"
	"github.com/auditrelay/auditrelay/internal/workspace"
	"github.com/auditrelay/auditrelay/internal/workspace/management"
	"github.com/auditrelay/auditrelay/internal/workspace/meaning"
	"github.com/auditrelay/auditrelay/internal/workspace/streaming"
)

// The words of a verdict.
const (
	AllWell     = "ok"      // nothing is wrong
	NotAllKnown = "unknown" // nothing is known to be wrong, and not all is known
	Trouble     = "trouble" // something is wrong
)

// fillingWithin: a journal that is full within this time is trouble.
const fillingWithin = 4 * time.Hour

// Verdict is the answer to "is every event log flowing, and does every sink get it?". The command line
// and the console in the browser show the same one.
type Verdict struct {
	Verdict  string    `json:"verdict"` // ok, unknown or trouble
	Troubles []Finding `json:"troubles"`
	Unknown  []Finding `json:"unknown"`
}

// Finding is a trouble or a doubt.
type Finding struct {
	Section string `json:"section"` // of /status, which has more about it
	What    string `json:"what"`    // in a clause
	// Remedy says what to do about it; empty where the section has it, or there is nothing to do.
	Remedy string `json:"remedy,omitempty"`
}

// verdictSection is the name of the verdict among the sections of a [Client]'s status.
const verdictSection = "verdict"

// judged are the sections of /status that a verdict is made of.
var judged = []string{"environments", "journal", "ready", "settings", "sinks", "streaming", "workspace"}

// Judge makes a verdict of sections of /status, as the relay reads them. A section that is not there is
// no trouble; one that the relay cannot read is. A silenced environment never is.
func Judge(sections map[string]any) Verdict {
	v := Verdict{Troubles: []Finding{}, Unknown: []Finding{}}
	for _, name := range slices.Sorted(maps.Keys(sections)) {
		if _, failed := sections[name].(map[string]string); failed {
			v.Unreadable(name)
		}
	}
	v.environments(of[[]health.Status](sections, "environments"))
	for _, h := range of[[]streaming.Health](sections, "streaming") {
		if h.Fight != nil {
			v.trouble("streaming", h.Advice, "somebody else sets the stream of %s/%s again and again", h.Project, h.Environment)
		}
	}
	v.sinks(of[[]Sink](sections, "sinks"))
	v.parts(of[admin.Readiness](sections, "ready"))
	v.journal(of[journal.Usage](sections, "journal"))
	v.workspace(sections)
	v.conclude()
	return v
}

// of is a section of a type; zero where it is another one, or not there.
func of[T any](sections map[string]any, name string) T {
	section, _ := sections[name].(T)
	return section
}

// Unreadable adds a section that cannot be read.
func (v *Verdict) Unreadable(section string) {
	f := Finding{Section: section, What: fmt.Sprintf("the section %s cannot be read", section)}
	if !slices.Contains(v.Troubles, f) {
		v.Troubles = append(v.Troubles, f)
	}
	v.conclude()
}

func (v *Verdict) conclude() {
	switch {
	case len(v.Troubles) > 0:
		v.Verdict = Trouble
	case len(v.Unknown) > 0:
		v.Verdict = NotAllKnown
	default:
		v.Verdict = AllWell
	}
}

func (v *Verdict) trouble(section, remedy, format string, args ...any) {
	v.Troubles = append(v.Troubles, Finding{section, fmt.Sprintf(format, args...), remedy})
}

func (v *Verdict) environments(all []health.Status) {
	for i := range all {
		e := &all[i]
		switch {
		case troubled(e):
			v.trouble("environments", e.Action, "%s/%s is %s", e.Project, e.Environment, e.State)
		case e.State.Severity() == meaning.Low && !e.Silenced:
			v.Unknown = append(v.Unknown, Finding{"environments", fmt.Sprintf("%s/%s is %s", e.Project, e.Environment, e.State), e.Action})
		}
	}
}

// troubled reports whether an environment's state is one that somebody should do something about.
func troubled(e *health.Status) bool {
	return !e.Silenced && slices.Index(severities, e.State.Severity()) > slices.Index(severities, meaning.Low)
}

func (v *Verdict) sinks(all []Sink) {
	for i := range all {
		if found := all[i].Trouble(); found != "" {
			v.trouble("sinks", strings.Join(all[i].Remedies(), "; "), "sink %s %s", all[i].Name, found)
		}
	}
}

func (v *Verdict) journal(u journal.Usage) {
	if u.SecondsToFull == nil || *u.SecondsToFull >= fillingWithin.Seconds() {
		return
	}
	left := max(time.Minute, time.Duration(*u.SecondsToFull*float64(time.Second)).Truncate(time.Minute))
	v.trouble("journal", "see why the sinks do not deliver, or raise journal.max_bytes", "the journal is full in %s", strings.TrimSuffix(left.String(), "0s"))
}

// parts adds the parts that no other section judges, and those that keep pushes from being taken.
func (v *Verdict) parts(ready admin.Readiness) {
	for _, p := range ready.Parts {
		switch {
		case p.State == "not_ready":
			v.trouble("ready", "", "pushes are refused (%s): %s", p.Name, p.Reason)
		case p.State == "warning" && !HasSection(p.Name):
			v.trouble("ready", "", "%s: %s", p.Name, p.Reason)
		}
	}
}

// HasSection reports whether a part of /readyz is judged by a section of /status.
func HasSection(part string) bool {
	return slices.Contains([]string{"sinks", "environments", "workspace", "dead letters"}, part)
}

func (v *Verdict) workspace(sections map[string]any) {
	reach, watched := sections["workspace"].(management.Reach)
	switch {
	case reach.Cause != "":
		v.trouble("workspace", unreachableRemedy(reach.Cause), "the management API cannot be used (%s)", reach.Cause)
		return // no setting can be read then
	case watched && !reach.Known:
		v.Unknown = append(v.Unknown, Finding{"workspace", "the management API has not been asked yet", ""})
	}
	failing := 0
	for _, s := range of[[]workspace.SettingStatus](sections, "settings") {
		if s.Error != "" {
			failing++
		}
	}
	switch {
	case failing == 1:
		v.trouble("settings", "", "1 setting cannot be read")
	case failing > 0:
		v.trouble("settings", "", "%d settings cannot be read", failing)
	}
}

// unreachableRemedy is what mends a management API that cannot be used.
func unreachableRemedy(cause management.Cause) string {
	switch cause {
	case management.CauseUnauthorized:
		return "correct workspace.key_id and workspace.secret in the configuration and restart the relay, or give the key its rights back in the dashboard"
	case management.CauseThrottled:
		return "lower workspace.requests_per_second, or stop others that use the API of this workspace; it goes on by itself"
	}
	return "see that workspace.base_url can be reached from here (name, network, proxy, TLS), or ask the provider; it goes on by itself"
}
