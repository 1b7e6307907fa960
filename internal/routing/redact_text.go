package routing

import (
	"bytes"
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"

	"github.com/auditrelay/auditrelay/internal/jsontext"
)

// maxQuoted bounds how deep texts of JSON may be nested in each other. Each level takes at least
// a quarter more bytes, so nobody has use for many.
const maxQuoted = 16

var (
	errHidden = errors.New("a text holds JSON with a value to redact")
	errQuoted = errors.New("a text holds JSON that is quoted too often to be looked into")
)

// mayHold reports whether a string, as it is written between its quotes, can be JSON or contain
// a JSON object: an object anywhere, or an array or a string at its start. Readers trim space.
func mayHold(raw []byte, escaped bool) bool {
	if bytes.IndexByte(raw, '{') >= 0 || escaped && (bytes.Contains(raw, []byte(`\u007b`)) || bytes.Contains(raw, []byte(`\u007B`))) {
		return true
	}
	if hasPercent(raw) {
		return true
	}
	for _, c := range raw {
		switch c {
		case ' ', '\t', '\n', '\r':
		default:
			return c == '[' || c == '"' || c == '\\' || c >= utf8.RuneSelf
		}
	}
	return false
}

// textOf unescapes a string, with U+FFFD for invalid text.
func textOf(raw jsontext.Raw) []byte {
	if !raw.Escaped {
		return raw.Bytes
	}
	text, err := raw.AppendText(nil)
	if err == nil {
		return text
	}
	var lenient string
	_ = json.Unmarshal(append(append([]byte{'"'}, raw.Bytes...), '"'), &lenient) // its grammar is checked
	return []byte(lenient)
}

// hides reports whether a text contains JSON with a value for the rules. Pointers count from the
// places of the text, or from the start. It only looks, since nothing can
// be removed from a text without writing it again. A text that it cannot examine to its end
// counts as hiding a value.
func (r *redaction) hides(text []byte, at places) bool {
	return r.look(text, at, 0) != nil
}

// look looks into a text that is nested in level others: an error says that it hides a value. A
// text that is JSON from its start to its end is read. Any other text may contain JSON anywhere, as a line of a log does, or
// something that only some readers take, with NaN, a line break in a string or single quotes. It
// counts as hiding a value if it mentions a pointer.
func (r *redaction) look(text []byte, at places, level int) error {
	if level == maxQuoted {
		return errQuoted
	}
	at = places{r.root}.with(at...)
	text = bytes.TrimLeftFunc(text, func(c rune) bool { return unicode.IsSpace(c) || c == '\ufeff' })
	e := editor{rules: r, body: text, looking: true, level: level + 1}
	e.scan.Reset(text)
	err := e.value(at)
	if err == nil {
		err = e.scan.End()
	}
	if syntax := (*jsontext.SyntaxError)(nil); errors.As(err, &syntax) {
		return mentioned(text, at)
	}
	return err
}

// mentioned reports an error for a text that mentions a pointer, as it is written or after some
// levels of its escapes are removed.
func mentioned(text []byte, at places) error {
	for range maxQuoted {
		folded := string(appendFold(nil, text))
		for _, n := range at {
			if n.isNamedIn(folded) {
				return errHidden
			}
		}
		plain := unquote(text)
		if len(plain) == len(text) {
			plain = unpercent(text)
		}
		if len(plain) == len(text) {
			return nil
		}
		text = plain
	}
	return errQuoted
}

// isNamedIn reports whether a folded text has all names on the way from n to the end of a
// pointer, wherever they are. The indexes of elements are not written in a text, but an element
// needs the bracket of its array, and a member of any name that of its object or array.
func (n *node) isNamedIn(folded string) bool {
	if n == nil || n.ends {
		return n != nil
	}
	for _, next := range n.elements {
		if next.isNamedIn(folded) && (!next.ends || strings.Contains(folded, "[")) {
			return true
		}
	}
	for name, next := range n.members {
		if hasName(folded, name) && next.isNamedIn(folded) {
			return true
		}
	}
	return n.every.isNamedIn(folded) && (!n.every.ends || strings.ContainsAny(folded, "[{"))
}

// hasName reports whether a text has a name in quotes, by itself or as a step of a path with
// dots.
func hasName(text, name string) bool {
	const ends = `"'.`
	for from := 0; from < len(text); from++ {
		at := strings.Index(text[from:], name)
		if at < 0 {
			break
		}
		from += at
		if end := from + len(name); from > 0 && end < len(text) &&
			strings.IndexByte(ends, text[from-1]) >= 0 && strings.IndexByte(ends, text[end]) >= 0 {
			return true
		}
	}
	return false
}

// hasPercent reports whether a text has the brace of an object as it is written in a URL, once
// or several times over: %7B, %257B.
func hasPercent(text []byte) bool {
	if bytes.IndexByte(text, '%') < 0 {
		return false
	}
	return bytes.Contains(text, []byte("7B")) || bytes.Contains(text, []byte("7b"))
}

// unpercent removes one level of a URL's escapes from a text. What is no escape stays.
func unpercent(text []byte) []byte {
	out := make([]byte, 0, len(text))
	for i := 0; i < len(text); i++ {
		if text[i] == '%' && i+2 < len(text) {
			if code, err := strconv.ParseUint(string(text[i+1:i+3]), 16, 8); err == nil {
				out = append(out, byte(code))
				i += 2
				continue
			}
		}
		out = append(out, text[i])
	}
	return out
}

// unquote removes one level of escapes from a text, as if it were in a JSON string. It is
// lenient: what is no escape stays.
func unquote(text []byte) []byte {
	out := make([]byte, 0, len(text))
	for i := 0; i < len(text); i++ {
		if text[i] != '\\' || i+1 == len(text) {
			out = append(out, text[i])
			continue
		}
		i++
		if at := strings.IndexByte("ntrbf", text[i]); at >= 0 {
			out = append(out, "\n\t\r\b\f"[at])
			continue
		}
		code, size, ok := jsontext.EscapedRune(text[i-1:])
		switch {
		case !ok:
			out = append(out, text[i])
			continue
		case code >= 0: // some readers drop half of a pair
			out = utf8.AppendRune(out, code)
		}
		i += size - len(`\u`)
	}
	return out
}

// appendFold appends name in a form that is the same for all names that a reader may take for
// equal: one without regard to case, such as encoding/json, or one that normalises text first
// (Unicode NFKC), such as a search engine. So full-width letters become plain ones, "ß" becomes
// "ss", and "ı" becomes "i". dst may be the start of name's own memory.
func appendFold[S ~string | ~[]byte](dst []byte, name S) []byte {
	for i := range len(name) {
		if name[i] >= utf8.RuneSelf {
			return append(dst[:len(dst)-i], foldText(string(name))...)
		}
		dst = append(dst, upper(name[i]))
	}
	return dst
}

func upper(c byte) byte {
	if 'a' <= c && c <= 'z' {
		c -= 'a' - 'A'
	}
	return c
}

// foldText folds a name outside of ASCII. It drops characters that are invisible, and joins
// letters with their marks only then, since such a character keeps the two apart.
func foldText(name string) string {
	var out strings.Builder
	for _, r := range norm.NFKC.String(strings.Map(visible, norm.NFKD.String(name))) {
		switch r {
		case 'ß', 'ẞ':
			out.WriteString("SS")
		case 'ı':
			out.WriteByte('I')
		default:
			out.WriteRune(foldRune(r))
		}
	}
	return out.String()
}

// visible drops invisible characters, and the dot above, which follows the "i" that some readers
// make of "İ".
func visible(r rune) rune {
	if r == '\u0307' || unicode.In(r, unicode.Cf, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector) {
		return -1
	}
	return r
}

// foldRune returns the smallest of the runes that are equal to r except in case.
func foldRune(r rune) rune {
	for {
		next := unicode.SimpleFold(r)
		if next <= r {
			return next
		}
		r = next
	}
}

func fold(name string) string { return string(appendFold(nil, name)) }
