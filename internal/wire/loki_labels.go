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
