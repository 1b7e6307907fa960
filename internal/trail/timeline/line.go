package timeline

import (
	"math"
	"strings"
	"time"
	"unicode/utf8"
)

// line is a row before it is in the table.
type line struct {
	time    time.Time
	names   [columns]string
	levels  levels
	flags   flags
	reviews int64  // with isAnnotation: the entry it marks
	text    string // its sentences as they stand in the file
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
	r := row{Time: min(nanos(l.time), math.MaxInt64-1), Text: text, Length: uint16(len(l.text)), Levels: l.levels, Flags: l.flags}
	for column, name := range l.names {
		limit := maxNames - 1
		if column == ofActor {
			limit = maxActors
		}
		r.Names[column] = t.name(name, limit)
	}
	t.add(r, appendFolded(nil, []byte(l.text)))
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
