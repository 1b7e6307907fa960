package wire

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/auditrelay/auditrelay/internal/jsontext"
	"github.com/auditrelay/auditrelay/relay"
)

// LabelLimit bounds a set.
type LabelLimit struct {
	Count int // labels
	Bytes int // of all names and values together
}

// maxEscape is the most bytes of an escaped text for one byte: Go's \U00000041. A text
// longer than maxEscape times Bytes exceeds the limit even before unescaping.
const maxEscape = 10

// LabelSet is a list of labels. Names may repeat. A decoder keeps it to reuse its memory.
type LabelSet struct {
	Labels []relay.Label

	limit LabelLimit
	bytes int
}

// Reset empties the set and keeps its memory.
func (s *LabelSet) Reset(limit LabelLimit) { s.Labels, s.limit, s.bytes = s.Labels[:0], limit, 0 }

// Add adds a label, or leaves it out and returns the limit it exceeds as an error.
func (s *LabelSet) Add(l relay.Label) error {
	if len(s.Labels) >= s.limit.Count {
		return fmt.Errorf("at most %d labels or attributes are taken", s.limit.Count)
	}
	if len(l.Name)+len(l.Value) > s.limit.Bytes-s.bytes {
		return s.limit.tooLong()
	}
	s.bytes += len(l.Name) + len(l.Value)
	s.Labels = append(s.Labels, l)
	return nil
}

// Check refuses an escaped text too long for any meaning.
func (l LabelLimit) Check(escaped int) error {
	if escaped > maxEscape*l.Bytes {
		return l.tooLong()
	}
	return nil
}

func (l LabelLimit) tooLong() error {
	return fmt.Errorf("at most %d bytes of labels or attributes are taken", l.Bytes)
}

// maxKept bounds a set in a pooled decoder.
const maxKept = 256

// Kept returns the set emptied, without references. It keeps the memory only if there is
// little.
func (s *LabelSet) Kept() LabelSet {
	if cap(s.Labels) > maxKept {
		return LabelSet{}
	}
	clear(s.Labels)
	return LabelSet{Labels: s.Labels[:0]}
}

var errLabels = errors.New(`they are not of the form {name="value", …}`)

// nameEnds cannot be in a label's name without quotes.
const nameEnds = "= \t\n\v\f\r,{}\"'`\u0085\u00a0"

// parseLabels adds the labels of Prometheus' text form, {a="b", c="d"}. No
// text at all is no labels. Values may stand in any of Go's quotes; names in
// double quotes too.
func parseLabels(set *LabelSet, raw []byte) error {
	if !utf8.Valid(raw) {
		return jsontext.ErrUTF8
	}
	text := strings.TrimSpace(view(raw))
	if text == "" {
		return nil
	}
	inner, ok := strings.CutPrefix(text, "{")
	if !ok {
		return errLabels
	}
	for {
		inner = strings.TrimSpace(inner)
		if inner == "}" {
			return nil
		}
		var l relay.Label
		var err error
		if l, inner, err = parseLabel(inner); err != nil {
			return err
		}
		if err = set.Add(l); err != nil {
			return err
		}
		inner = strings.TrimSpace(inner)
		if rest, more := strings.CutPrefix(inner, ","); more {
			inner = rest
		} else if inner != "}" {
			return errLabels
		}
	}
}

// parseLabel reads name="value" at the start of text.
func parseLabel(text string) (l relay.Label, rest string, err error) {
	if strings.HasPrefix(text, `"`) {
		l.Name, text, err = parseQuoted(text)
	} else {
		end := strings.IndexAny(text, nameEnds)
		if end <= 0 {
			return l, "", errLabels
		}
		l.Name, text = text[:end], text[end:]
	}
	if err != nil {
		return l, "", err
	}
	text, ok := strings.CutPrefix(strings.TrimSpace(text), "=")
	if !ok {
		return l, "", errLabels
	}
	l.Value, rest, err = parseQuoted(strings.TrimSpace(text))
	return l, rest, err
}

// parseQuoted reads a quoted string at the start of text. It copies only a string with
// escapes.
func parseQuoted(text string) (value, rest string, err error) {
	if text == "" || !strings.Contains("\"'`", text[:1]) {
		return "", "", errLabels
	}
	quote := text[0]
	text = text[1:]
	end := strings.IndexByte(text, quote)
	if end >= 0 && (quote == '`' || strings.IndexByte(text[:end], '\\') < 0) {
		return text[:end], text[end+1:], nil
	}
	var b strings.Builder
	for text != "" && text[0] != quote {
		r, multibyte, tail, err := strconv.UnquoteChar(text, quote)
		if err != nil {
			return "", "", fmt.Errorf("a value has an invalid escape: %w", err)
		}
		if multibyte || r < utf8.RuneSelf {
			b.WriteRune(r)
		} else {
			b.WriteByte(byte(r)) // \xff and the like
		}
		text = tail
	}
	if text == "" || quote == '`' {
		return "", "", errLabels
	}
	if !utf8.ValidString(b.String()) {
		return "", "", jsontext.ErrUTF8
	}
	return b.String(), text[1:], nil
}
