package cli

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/auditrelay/auditrelay/internal/control/console"
	"github.com/auditrelay/auditrelay/internal/health"
	"github.com/auditrelay/auditrelay/internal/trail/timeline"
	"github.com/auditrelay/auditrelay/internal/workspace/management"
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
		if p.State == "not_ready" || p.State == "warning" && !hasSection(p.Name) && p.Name != "audit trail" {
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
	of := strings.TrimSuffix(c.Project+"/"+c.Environment, "/")
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
		add("", inkStrong, "do: "+unreachableRemedy(w.Cause))
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
