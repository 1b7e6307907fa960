package timeline

import (
	"strings"
	"time"
	"unicode/utf8"
)

// line is a row before it is in the table.
type line struct {
	time                                              time.Time
	kind, project, environment, subject, cause, actor string
	severity, direction                               uint8
	flags                                             flags
	reviews                                           int64  // with isAnnotation: the entry it marks
	text                                              string // its sentences as they stand in the file
}

const (
	// maxSummary bounds a sentence in a list, in bytes.
	maxSummary = 1000
	// maxFurther bounds the other sentences of an entry. They are kept to be found only.
	maxFurther = 8000
	// behindSummary ends the summary in a text with further sentences.
	behindSummary = 0
)

// textOf joins the sentences of an entry.
func textOf(summary, further string) string {
	text := strings.ReplaceAll(bounded(summary, maxSummary), "\x00", " ")
	if further != "" {
		text += "\x00" + further
	}
	return text
}

// take adds the row of a line, whose text stands at a place in the file.
func (t *table) take(l *line, text int64) {
	if l.flags&isMissing != 0 {
		t.add(row{Flags: isMissing}, nil)
		return
	}
	t.add(row{
		Time: l.time.UnixNano(), Text: text, Length: uint16(len(l.text)),
		Kind: t.name(l.kind, maxNames-1), Project: t.name(l.project, maxNames-1), Environment: t.name(l.environment, maxNames-1),
		Subject: t.name(l.subject, maxNames-1), Cause: t.name(l.cause, maxNames-1), Actor: t.name(l.actor, maxActors),
		Levels: levelsOf(l.severity, l.direction), Flags: l.flags,
	}, appendFolded(nil, []byte(l.text)))
	if l.flags&isAnnotation != 0 {
		t.addReview(review{Of: l.reviews, By: t.n - 1})
	}
}

// name is the place of a name, which is added while there are fewer than limit. 0 is otherName.
func (t *table) name(s string, limit int) uint16 {
	if t.ids == nil {
		t.ids, t.names = map[string]uint16{otherName: 0}, []string{otherName}
	}
	id, known := t.ids[s]
	if !known && len(t.names) < limit {
		id = uint16(len(t.names))
		t.ids[s], t.names = id, append(t.names, s)
	}
	return id
}

// bounded cuts a text.
func bounded(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	cut := limit - len("…")
	for cut > 0 && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut] + "…"
}
