package webhook

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/auditrelay/auditrelay/internal/plaintext"
	"github.com/auditrelay/auditrelay/relay"
)

const (
	// maxLines is how many lines a message has, unless the trail's entries alone take more.
	// Other events that do not fit are counted.
	maxLines = 20
	// maxLine bounds a line, in characters.
	maxLine = 500
	// maxText bounds the lines of several entries of the trail, in bytes, since Slack cuts a
	// message at 40,000 characters.
	maxText = 30_000
)

// errLong makes the pump halve the delivery, because each entry of the trail must have its
// line.
var errLong = errors.New("the entries of the audit trail are too long for one message")

// messageOf makes a message for a chat: {"text": …} in Slack's mrkdwn. The whole batch is one
// message, so that a burst of changes is one notification. The trail's entries come first, and
// each is shown. Pushed events come after them, as far as there is room: whoever may push can
// write anything into one, and can send as many as they like.
func messageOf(events []relay.Event) ([]byte, error) {
	entries, others := entryLines(events), otherLines(events)
	if len(entries) > 1 && len(strings.Join(entries, "\n")) > maxText {
		return nil, relay.Permanent(errLong)
	}
	shown := min(len(others), max(0, maxLines-len(entries)))
	lines := append(entries, others[:shown]...)
	if more := len(others) - shown; more > 0 {
		lines = append(lines, fmt.Sprintf("… and %d more events", more))
	}
	// Slack must not fetch what a text links to.
	return json.Marshal(map[string]any{"text": strings.Join(lines, "\n"), "unfurl_links": false, "unfurl_media": false})
}

var severities = []string{"info", "low", "medium", "high", "critical"}

// entryLines returns the lines of the audit trail's entries, in their order. If there are many,
// the most severe ones come first.
func entryLines(events []relay.Event) []string {
	type told struct {
		line     string
		severity int
	}
	var all []told
	for i := range events {
		if events[i].OfTrail() {
			text, severity := entryLine(&events[i])
			all = append(all, told{text, slices.Index(severities, severity)})
		}
	}
	if len(all) > maxLines {
		slices.SortStableFunc(all, func(a, b told) int { return cmp.Compare(b.severity, a.severity) })
	}
	lines := make([]string, len(all))
	for i := range all {
		lines[i] = all[i].line
	}
	return lines
}

// entryLine describes an entry of the trail, with its severity: a change by its severity,
// direction and sentence, and any other entry by its type. If a person has to act, a second
// line says what to do, with the page about it.
func entryLine(e *relay.Event) (text, severity string) {
	var entry struct {
		Detail struct{ Summary, Severity, Direction, Action, Runbook string }
	}
	_ = json.Unmarshal(e.Body, &entry) // entries of other kinds have none of these
	d := entry.Detail
	if d.Summary == "" {
		return inert(e.Type + ": " + where(e)), ""
	}
	text = inert(fmt.Sprintf("%s: %s: %s", joined(", ", d.Severity, d.Direction), where(e), d.Summary))
	if d.Action != "" && strings.HasPrefix(e.Type, "health.") { // in other entries, an action is an id
		text += "\n> " + joined(" ", inert("to do: "+d.Action), plain(d.Runbook))
	}
	return text, d.Severity
}

// otherLines describe pushed events by their types and environments alone, and nothing in their
// bodies is believed. A type contains the sender's text, so it is shown as code, in which a
// chat recognises no mentions, links and formats.
func otherLines(events []relay.Event) (lines []string) {
	for i := range events {
		if e := &events[i]; !e.OfTrail() {
			lines = append(lines, "`"+strings.ReplaceAll(inert(e.Type), "`", "'")+"`: "+inert(where(e)))
		}
	}
	return lines
}

func where(e *relay.Event) string {
	return strings.Trim(e.Project+"/"+e.Environment+" "+e.Subject, "/ ")
}

// joined joins the non-empty texts.
func joined(by string, texts ...string) string {
	return strings.Join(slices.DeleteFunc(texts, func(s string) bool { return s == "" }), by)
}

// plain makes a text one line without control sequences of the chat's.
func plain(text string) string {
	return strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;").Replace(plaintext.Line(text, maxLine))
}

// inert is plain text without mentions and links. Slack has no escapes for these, so an
// invisible space parts them, as chats recommend.
func inert(text string) string {
	return strings.NewReplacer("@", "@\u200b", "://", ":\u200b//", "](", "]\u200b(", "www.", "www\u200b.", "mailto:", "mailto\u200b:").Replace(plain(text))
}
