package redact

import (
	"bytes"
	"encoding/json"
	"errors"
	"unicode"
	"unicode/utf8"

	"github.com/auditrelay/auditrelay/internal/json/jsonscan"
)

// maxQuoted bounds the levels of JSON in a text of JSON: each level takes a quarter
// more bytes at the least, so nobody has use for many.
const maxQuoted = 16

var (
	errHidden = errors.New("a text in it is JSON in turn, with a value to redact")
	errQuoted = errors.New("texts in it are JSON in turn, too often to be looked into")
)

// mayBeJSON reports whether a text, or a string as it stands between its quotes, can be
// JSON: an object, an array, or a string with a chance to be one. Readers trim space.
func mayBeJSON[S ~string | ~[]byte](raw S) bool {
	for i := range len(raw) {
		switch c := raw[i]; c {
		case ' ', '\t', '\n', '\r':
		default:
			return c == '{' || c == '[' || c == '"' || c == '\\' || c >= utf8.RuneSelf
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

// look returns an error where text is JSON, or begins with it, and holds a value for
// the rules: counted from any of the nodes above the text, or from the start. It only
// looks: in a text nothing can be taken out without writing it anew. Text other than
// JSON, such as a line of a log, hides nothing.
func (r *Rules) look(text []byte, nodes []*node, level int) error {
	text = bytes.TrimLeftFunc(text, func(c rune) bool { return unicode.IsSpace(c) || c == '\ufeff' })
	if len(text) == 0 || text[0] != '{' && text[0] != '[' && text[0] != '"' {
		return nil
	}
	if level == maxQuoted {
		return errQuoted
	}
	l := looker{rules: r, level: level + 1}
	l.scan.Reset(text)
	nodes = append(nodes[:len(nodes):len(nodes)], r.root)
	for l.scan.Peek() != 0 { // as a reader of lines would
		err := l.value(nodes, 0)
		if syntax := (*jsonscan.SyntaxError)(nil); errors.As(err, &syntax) {
			return nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// looker looks for values in one text.
type looker struct {
	rules *Rules
	scan  jsonscan.Scanner
	level int // of texts in texts
}

// value reads one value, the end of all the nodes.
func (l *looker) value(nodes []*node, depth int) error {
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
		if err != nil || !mayBeJSON(raw.Bytes) {
			return err
		}
		return l.rules.look(textOf(raw), nodes, l.level)
	}
	return l.scan.Skip()
}

func (l *looker) object(nodes []*node, depth int) error {
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
		if err := l.step(nodes, depth, func(n *node) *node { return n.member(name) }); err != nil {
			return err
		}
	}
}

func (l *looker) array(nodes []*node, depth int) error {
	_ = l.scan.Open('[')
	for i := 0; ; i++ {
		more, err := l.scan.More(']', i)
		if err != nil || !more {
			return err
		}
		if err := l.step(nodes, depth, func(n *node) *node { return n.element(i) }); err != nil {
			return err
		}
	}
}

// step reads the next value, with the nodes behind next.
func (l *looker) step(nodes []*node, depth int, next func(*node) *node) error {
	var behind []*node
	for _, n := range nodes {
		switch to := next(n); {
		case to == nil:
		case to.ends:
			return errHidden
		default:
			behind = append(behind, to)
		}
	}
	return l.value(behind, depth+1)
}
