package redact

import (
	"bytes"
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/auditrelay/auditrelay/internal/json/jsonscan"
)

const (
	// maxQuoted bounds how deep texts of JSON may be nested in each other. Each level takes at
	// least a quarter more bytes, so nobody has use for many.
	maxQuoted = 16
	// maxWork bounds how many bytes of a text are read, as a multiple of its length, since JSON
	// may begin at each brace, of which there may be many.
	maxWork = 4
)

var (
	errHidden = errors.New("a text holds JSON with a value to redact")
	errQuoted = errors.New("a text holds JSON in too many places to be looked into")
	errName   = errors.New("a member's name is not valid text")
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
func textOf(raw jsonscan.Raw) []byte {
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

// hides reports whether a text contains JSON with a value for the rules. Pointers count from n,
// the node above the text (nil for none), or from the start. It only looks, since nothing can
// be removed from a text without writing it again. A text that it cannot examine to its end
// counts as hiding a value.
func (r *Rules) hides(text []byte, n *node) bool {
	nodes := []*node{r.root}
	if n != nil {
		nodes = append(nodes, n)
	}
	l := looker{rules: r, left: maxWork*len(text) + 4096}
	return l.text(text, nodes, 0) != nil
}

// looker looks for values in one text.
type looker struct {
	rules *Rules
	left  int // bytes it may still read
}

// text looks for JSON in a text: for one value after the other at its start, as a reader of
// lines does, and for objects anywhere, as in a line of a log.
func (l *looker) text(text []byte, nodes []*node, level int) error {
	if level == maxQuoted {
		return errQuoted
	}
	if hasPercent(text) {
		if l.left -= len(text); l.left < 0 {
			return errQuoted
		}
		if plain := unpercent(text); len(plain) < len(text) {
			if err := l.text(plain, nodes, level+1); err != nil {
				return err
			}
		}
	}
	text = bytes.TrimLeftFunc(text, func(c rune) bool { return unicode.IsSpace(c) || c == '\ufeff' })
	lists := anyElements(nodes)
	// fresh is set at the start and after a value. unquoted says that the remaining text has been
	// read without its escapes, and searched that it has been searched for the names of pointers.
	for fresh, unquoted, searched := true, false, false; ; {
		at := begins(text, fresh, lists)
		if at < 0 {
			return nil
		}
		text = text[at:]
		v := valueLooker{looker: l, level: level}
		v.scan.Reset(text)
		err := v.value(nodes, 0)
		if l.left -= v.scan.Pos() + 1; l.left < 0 {
			return errQuoted
		}
		if err == nil {
			text, fresh = bytes.TrimLeft(text[v.scan.Pos():], " \t\r\n"), true
			continue
		}
		if syntax := (*jsonscan.SyntaxError)(nil); !errors.As(err, &syntax) {
			return err
		}
		if !searched && text[0] == '{' {
			searched = true
			if err := l.almost(text, nodes); err != nil {
				return err
			}
		}
		text, fresh = text[1:], false
		if !unquoted && bytes.HasPrefix(bytes.TrimLeft(text, " "), []byte{'\\'}) {
			unquoted = true
			if l.left -= len(text); l.left < 0 {
				return errQuoted
			}
			if err := l.text(append([]byte{'{'}, unquote(text)...), nodes, level+1); err != nil {
				return err
			}
		}
	}
}

// almost reports an error for a text with an object that is not quite JSON, but that some
// readers take: with NaN, a line break in a string, or single quotes. It looks for the names on
// the way of a pointer, in quotes.
func (l *looker) almost(text []byte, nodes []*node) error {
	if l.left -= len(text); l.left < 0 {
		return errQuoted
	}
	folded := string(appendFold(nil, unquote(text)))
	for _, n := range nodes {
		if n.isNamedIn(folded) {
			return errHidden
		}
	}
	return nil
}

// isNamedIn reports whether a folded text has all names on the way from n to the end of a
// pointer.
func (n *node) isNamedIn(folded string) bool {
	if n == nil || n.ends {
		return n != nil
	}
	for name, next := range n.members {
		if (strings.Contains(folded, `"`+name+`"`) || strings.Contains(folded, "'"+name+"'")) && next.isNamedIn(folded) {
			return true
		}
	}
	return n.every.isNamedIn(folded)
}

// begins returns where JSON may begin next in a text, or -1. Strings count only at the very
// start, and so do arrays, unless a pointer names an element by its index.
func begins(text []byte, first, lists bool) int {
	if first && len(text) > 0 && (text[0] == '[' || text[0] == '"') {
		return 0
	}
	if lists {
		return bytes.IndexAny(text, "{[")
	}
	return bytes.IndexByte(text, '{')
}

func anyElements(nodes []*node) bool {
	for _, n := range nodes {
		if n.every != nil || len(n.elements) > 0 {
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
		switch c := text[i]; c {
		case 'n', 't', 'r', 'b', 'f':
			out = append(out, ' ')
		case 'u':
			if code, err := strconv.ParseUint(string(text[i+1:min(i+5, len(text))]), 16, 16); err == nil {
				out = utf8.AppendRune(out, rune(code)) //nolint:gosec // 16 bits
				i += 4
			}
		default:
			out = append(out, c)
		}
	}
	return out
}

// valueLooker examines one value of a text.
type valueLooker struct {
	*looker

	scan  jsonscan.Scanner
	level int // how deep the text is nested in texts
}

// value reads one value, to which all the nodes belong.
func (l *valueLooker) value(nodes []*node, depth int) error {
	if depth > jsonscan.MaxDepth {
		return errDeep
	}
	switch l.scan.Peek() {
	case '{':
		return l.object(nodes, depth)
	case '[':
		return l.array(nodes, depth)
	case '"':
		raw, err := l.scan.String()
		if err != nil || !mayHold(raw.Bytes, raw.Escaped) {
			return err
		}
		nodes = append(nodes[:len(nodes):len(nodes)], l.rules.root)
		return l.text(textOf(raw), nodes, l.level+1)
	}
	return l.scan.Skip()
}

func (l *valueLooker) object(nodes []*node, depth int) error {
	_ = l.scan.Open('{')
	for i := 0; ; i++ {
		more, err := l.scan.More('}', i)
		if err != nil || !more {
			return err
		}
		raw, err := l.scan.RawKey()
		if err != nil {
			return err
		}
		text, err := raw.AppendText(nil)
		if err != nil && len(nodes) > 0 {
			return errName
		}
		name := appendFold(text[:0], text)
		if err := l.step(nodes, depth, func(n *node) (_, _ *node) { return n.named(name) }); err != nil {
			return err
		}
	}
}

func (l *valueLooker) array(nodes []*node, depth int) error {
	_ = l.scan.Open('[')
	for i := 0; ; i++ {
		more, err := l.scan.More(']', i)
		if err != nil || !more {
			return err
		}
		err = l.step(nodes, depth, func(n *node) (element, again *node) {
			if depth == 0 && n == l.rules.root { // a list of events
				again = n
			}
			return n.element(i), again
		})
		if err != nil {
			return err
		}
	}
}

// step reads the next value, with the nodes that follow by next.
func (l *valueLooker) step(nodes []*node, depth int, next func(*node) (a, b *node)) error {
	var after []*node
	for _, n := range nodes {
		a, b := next(n)
		for _, to := range [...]*node{a, b} {
			switch {
			case to == nil:
			case to.ends:
				return errHidden
			default:
				after = append(after, to)
			}
		}
	}
	return l.value(after, depth+1)
}
