package webhook

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/auditrelay/auditrelay/internal/plaintext"
	"github.com/auditrelay/auditrelay/relay"
)

const (
	// maxLines bounds the events shown in one message; the rest are counted.
	maxLines = 20
	// maxLine bounds a line, in characters. Slack cuts a message of 40,000.
	maxLine = 500
)

// messageOf is a message for a chat: {"text": …} in Slack's mrkdwn. One message
// stands for the whole batch, so a burst of changes is one notification.
func messageOf(events []relay.Event) []byte {
	var text strings.Builder
	for i, told := range worst(events) {
		if i > 0 {
			text.WriteByte('\n')
		}
		text.WriteString(told.line)
	}
	if more := len(events) - maxLines; more > 0 {
		fmt.Fprintf(&text, "\n… and %d more events", more)
	}
	body, err := json.Marshal(map[string]string{"text": text.String()})
	if err != nil { // never: it is a text
		return []byte(`{"text":"events"}`)
	}
	return body
}

// told is an event as a line, with its place in severities.
type told struct {
	line     string
	severity int
}

var severities = []string{"info", "low", "medium", "high", "critical"}

// worst are the events to show, in their order. If there are too many, the most severe ones
// come first: a burst of small changes must not hide a large one.
func worst(events []relay.Event) []told {
	all := make([]told, len(events))
	for i := range events {
		text, severity := line(&events[i])
		all[i] = told{text, slices.Index(severities, severity)}
	}
	if len(all) > maxLines {
		slices.SortStableFunc(all, func(a, b told) int { return cmp.Compare(b.severity, a.severity) })
		all = all[:maxLines]
	}
	return all
}

// line tells an event, with its severity: a change by its severity, direction and sentence,
// any other event by its type. Where a person has to act, a second line says how, with the
// page about it.
func line(e *relay.Event) (text, severity string) {
	var entry struct {
		Detail struct{ Summary, Severity, Direction, Action, Runbook string }
	}
	_ = json.Unmarshal(e.Body, &entry) // another event has none of these
	where := strings.Trim(e.Project+"/"+e.Environment+" "+e.Subject, "/ ")
	if d := entry.Detail; d.Summary != "" {
		text = plain(fmt.Sprintf("%s: %s: %s", joined(", ", d.Severity, d.Direction), where, d.Summary))
		if d.Action != "" && strings.HasPrefix(e.Type, "health.") { // elsewhere, an action is an id
			text += "\n> " + joined(" ", plain("to do: "+d.Action), plain(d.Runbook))
		}
		return text, d.Severity
	}
	return plain(e.Type + ": " + where), ""
}

// joined joins the non-empty texts.
func joined(by string, texts ...string) string {
	return strings.Join(slices.DeleteFunc(texts, func(s string) bool { return s == "" }), by)
}

// plain makes a text one line without mentions and links of the chat's.
func plain(text string) string {
	return strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;").Replace(plaintext.Line(text, maxLine))
}
