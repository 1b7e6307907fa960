package cli

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/auditrelay/auditrelay/internal/control/console"
	"github.com/auditrelay/auditrelay/internal/health"
	"github.com/auditrelay/auditrelay/internal/trail/timeline"
	"github.com/auditrelay/auditrelay/internal/workspace/management"
	"github.com/auditrelay/auditrelay/internal/workspace/meaning"
)

// verdict is the relay's, and what this command cannot read of its answer.
func (s *relayStatus) verdict() console.Verdict {
	v := s.Verdict
	for _, name := range slices.Sorted(maps.Keys(s.unreadable)) {
		v.Unreadable(name)
	}
	return v
}

// verdictLine is the verdict in one line.
func (s *relayStatus) verdictLine() string {
	switch v := s.verdict(); v.Verdict {
	case console.Trouble:
		return "TROUBLE: " + clauses(v.Troubles)
	case console.NotAllKnown:
		return "NOT ALL IS KNOWN: " + clauses(v.Unknown) + "; nothing is known to be wrong"
	}
	return fmt.Sprintf("ALL WELL: %s, %s", does(len(s.Environments), "environment", "flows", "flow"), does(len(s.Sinks), "sink", "delivers", "deliver"))
}

func clauses(findings []console.Finding) string {
	all := make([]string, len(findings))
	for i, f := range findings {
		all[i] = f.What
	}
	return strings.Join(all, "; ")
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
	return cmp.Or(severityInks[e.State.Severity()], inkTrouble)
}

// severityInks and conditionInks are those that tell of no trouble.
var (
	severityInks  = map[meaning.Severity]ink{meaning.Info: inkGood, meaning.Low: inkUnknown, meaning.Medium: inkWarning}
	conditionInks = map[console.Condition]ink{console.Delivers: inkGood, console.LeftOver: inkFaint}
)

// conditionInk is how the deliveries to a sink are judged.
func conditionInk(c console.Condition) ink { return cmp.Or(conditionInks[c], inkTrouble) }

// rest are the other parts, a line or a few each.
func (s *screen) rest(b brush, width int) (lines []string) {
	add := func(title string, i ink, text string) {
		for n, line := range wrap(text, width-restIndent) {
			if n > 0 {
				title = ""
			}
			lines = append(lines, b.paint(inkStrong, fmt.Sprintf("%-*s", restIndent, title))+b.paint(i, line))
		}
	}
	for _, name := range []string{"relay", "ready", "journal", "trail", "streaming", "workspace", "settings", "changes"} {
		if reason, failed := s.status.unreadable[name]; failed {
			add(strings.ToUpper(name), inkTrouble, "cannot be read: "+reason)
		}
	}
	add("JOURNAL", inkPlain, s.journal())
	trail, damaged := strings.CutPrefix(s.status.Trail.State, "warning: ")
	add("TRAIL", map[bool]ink{true: inkWarning}[damaged], trail)
	s.workspace(add)
	for _, p := range s.status.Ready.Parts {
		if p.State == "not_ready" || p.State == "warning" && !console.HasSection(p.Name) && p.Name != "audit trail" {
			add(strings.ToUpper(p.Name), map[string]ink{"not_ready": inkTrouble, "warning": inkWarning}[p.State], p.Reason)
		}
	}
	title := "CHANGES"
	for i := range s.status.Changes {
		add(title, inkPlain, changeText(&s.status.Changes[i]))
		title = ""
	}
	return lines
}

// changeText names the change and its author.
func changeText(c *timeline.Row) string {
	of := placeOf(c.Project, c.Environment)
	if !strings.HasPrefix(c.Type, "streaming.") {
		of += " " + c.Setting
	}
	return fmt.Sprintf("%s %s, by %s: %s", clock(c.Time), of, causeText(c.Who()), c.Summary)
}

const restIndent = 12

// causeText says who made a change, as far as the trail knows.
func causeText(who string) string {
	switch who {
	case "relay":
		return "this relay"
	case "outside", "":
		return "somebody outside"
	}
	return who
}

func (s *screen) journal() string {
	j := s.status.Journal
	if j.MaxBytes == 0 { // its section has no answer, and says so
		return ""
	}
	share := func(part int64) float64 { return 100 * float64(part) / float64(j.MaxBytes) }
	undelivered := j.Undelivered // leaves out little of what an earlier process received
	for _, sink := range s.status.Sinks {
		if sink.Position != nil {
			undelivered = max(undelivered, sink.Position.HeldBytes)
		}
	}
	text := fmt.Sprintf("%.1f%% of %s spent, %.1f%% undelivered", share(j.Bytes), sizeText(j.MaxBytes), share(undelivered))
	if j.SecondsToFull != nil {
		text += ", full in " + spanText(*j.SecondsToFull) + " at this rate"
	}
	return text + "; a replay reaches back " + spanText(j.ReplaySeconds)
}

func (s *screen) workspace(add func(string, ink, string)) {
	w := s.status.Workspace
	if w == nil {
		add("WORKSPACE", inkFaint, "none is configured: nothing is watched or set")
		return
	}
	failing := failingSettings(&s.status)
	text := fmt.Sprintf("the management API answers; %s watched", count(len(s.status.Settings), "setting"))
	switch {
	case w.Cause != "":
		add("WORKSPACE", inkTrouble, fmt.Sprintf("the management API cannot be used since %s (%s)%s: %s", clock(w.Since), w.Cause, nextTry(w), w.Error))
		for _, f := range s.status.Verdict.Troubles {
			if f.Section == "workspace" {
				add("", inkStrong, "do: "+f.Remedy)
			}
		}
		return
	case !w.HeldUntil.IsZero():
		text = fmt.Sprintf("the management API asked to wait until %s, and nothing is sent before", clock(w.HeldUntil))
	case !w.Known:
		text = "the management API has not been asked yet"
	case len(failing) > 0:
		text += fmt.Sprintf(", %d cannot be read:", len(failing))
	}
	add("WORKSPACE", inkPlain, text)
	for _, f := range failing[:min(len(failing), 3)] {
		add("", inkWarning, f)
	}
}

// nextTry tells when the API is asked again; nothing while it is being asked.
func nextTry(w *management.Reach) string {
	if w.NextTry.IsZero() {
		return ""
	}
	return ", the next try is at " + clock(w.NextTry)
}

// failingSettings are the unreadable settings, with the reasons.
func failingSettings(s *relayStatus) (failing []string) {
	for _, one := range s.Settings {
		if one.Error != "" {
			failing = append(failing, strings.Trim(one.Project+"/"+one.Environment, "/")+" "+one.Subject+": "+one.Error)
		}
	}
	return failing
}
