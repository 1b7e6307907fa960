package webhook

import (
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

// appendMessage appends a message for a chat: {"text": …} in Slack's mrkdwn. One message
// stands for the whole batch, so a burst of changes is one notification.
func appendMessage(dst []byte, events []relay.Event) []byte {
	var text strings.Builder
	for i := range events[:min(len(events), maxLines)] {
		if i > 0 {
			text.WriteByte('\n')
		}
		text.WriteString(line(&events[i]))
	}
	if more := len(events) - maxLines; more > 0 {
		fmt.Fprintf(&text, "\n… and %d more events", more)
	}
	body, err := json.Marshal(map[string]string{"text": text.String()})
	if err != nil { // never: it is a text
		return append(dst, `{"text":"events"}`...)
	}
	return append(dst, body...)
}

// line tells an event: a change by its severity, direction and sentence, any other event by
// its type. Where a person has to act, a second line says how, with the page about it.
func line(e *relay.Event) string {
	var entry struct {
		Detail struct{ Summary, Severity, Direction, Action, Runbook string }
	}
	_ = json.Unmarshal(e.Body, &entry) // another event has none of these
	where := strings.Trim(e.Project+"/"+e.Environment+" "+e.Subject, "/ ")
	if d := entry.Detail; d.Summary != "" {
		text := plain(fmt.Sprintf("%s: %s: %s", joined(", ", d.Severity, d.Direction), where, d.Summary))
		if d.Action != "" && strings.HasPrefix(e.Type, "health.") { // elsewhere, an action is an id
			text += "\n> " + joined(" ", plain("to do: "+d.Action), plain(d.Runbook))
		}
		return text
	}
	return plain(e.Type + ": " + where)
}

// joined joins the texts that are not empty.
func joined(by string, texts ...string) string {
	return strings.Join(slices.DeleteFunc(texts, func(s string) bool { return s == "" }), by)
}

// plain makes a text one line without mentions and links of the chat's.
func plain(text string) string {
	return strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;").Replace(plaintext.Line(text, maxLine))
}
