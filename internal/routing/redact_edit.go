package routing

import (
	"fmt"
	"slices"

	"github.com/auditrelay/auditrelay/internal/jsontext"
)

// editor reads a body, or a text in it, once. After it has found the first value to edit, it copies the rest. It
// recurses as deep as pointers lead.
type editor struct {
	rules  *redaction
	body   []byte
	scan   jsontext.Scanner
	out    []byte // nil as long as nothing has changed
	copied int    // how much of body is in out
	depth  int    // that of the current value
	seen   []bool // by pointer: whether it has named a value; nil if nobody asks
	// looking is set for a text inside of a body, which is only looked into: the first value to edit
	// is an error. level is how deep the text is nested in texts.
	looking bool
	level   int
	room    [128]byte
}

// unreadable is the place of a member whose name is not valid text. One reader may drop the
// invalid part and another may replace it, and so read the very name; therefore the member is
// removed.
var unreadable = places{{ends: true, action: actionRemove}}

// hidden replaces a text that is itself JSON, or contains it, with a value that a pointer
// names. From such a text nothing can be removed with certainty.
const hidden = `"[redacted]"`

var errDeep = fmt.Errorf("it is nested deeper than %d", jsontext.MaxDepth)

// whole reads the body, which must be an object: pointers lead into nothing else, and an array,
// a string or plain text may contain any value at any place.
func (e *editor) whole() error {
	if c := e.scan.Peek(); c == '[' || c == '"' {
		return fmt.Errorf("it is %s, not a JSON object", jsontext.Kind(c))
	}
	start := e.scan.Pos()
	if err := e.value(places{e.rules.root}); err != nil {
		return err
	}
	if err := e.scan.End(); err != nil {
		return err
	}
	if e.body[start] != '{' {
		return fmt.Errorf("it is %s, not a JSON object", jsontext.Kind(e.body[start]))
	}
	for number, seen := range e.seen {
		if !seen {
			return fmt.Errorf("%s names nothing in it, and missing is withhold", e.rules.pointers[number])
		}
	}
	return nil
}

// replace leaves out body[from:to], and writes with in its place.
func (e *editor) replace(from, to int, with string) {
	if e.out == nil {
		e.out = make([]byte, 0, len(e.body)+len(with))
	}
	e.out = append(e.out, e.body[e.copied:from]...)
	e.out = append(e.out, with...)
	e.copied = to
}

// value reads one value to its end, which is not removed.
func (e *editor) value(at places) error {
	_, ends := at.action()
	switch c := e.scan.Peek(); {
	case ends:
		if err := e.note(at); err != nil {
			return err
		}
		return e.hash()
	case c == '{' || c == '[':
		return e.inside(c, at)
	case c == '"':
		return e.text(at)
	}
	return e.scan.Skip()
}

// inside reads an object or an array. Its depth is bounded, as it recurses.
func (e *editor) inside(c byte, at places) error {
	if e.depth == jsontext.MaxDepth {
		return errDeep
	}
	e.depth++
	defer func() { e.depth-- }()
	if c == '{' {
		return e.object(at)
	}
	return e.array(at)
}

// text reads a string, and examines it if it has tags, or may contain JSON.
func (e *editor) text(at places) error {
	from := e.scan.Pos()
	raw, err := e.scan.String()
	if err != nil {
		return err
	}
	var found error
	switch {
	case at.areTags() && e.rules.hidesTag(textOf(raw)):
		found = errHidden
	case mayHold(raw.Bytes, raw.Escaped):
		found = e.rules.look(textOf(raw), at, e.level)
	}
	if found != nil && !e.looking {
		e.replace(from, e.scan.Pos(), hidden)
		return nil
	}
	return found
}

// note records that the pointers to a value have found something. Where the editor only looks, that
// is an error.
func (e *editor) note(at places) error {
	if e.looking {
		return errHidden
	}
	for _, n := range at {
		if e.seen != nil {
			n.note(e.seen)
		}
	}
	return nil
}

func (e *editor) hash() error {
	from := e.scan.Pos()
	if err := e.scan.Skip(); err != nil {
		return err
	}
	to := e.scan.Pos()
	e.replace(from, to, "")
	e.out = e.rules.appendHash(e.out, e.body[from:to])
	return nil
}

func (e *editor) array(at places) error {
	var room few
	return e.scan.Array(func(i int) error {
		next := at.element(room[:0], i)
		if e.depth == 1 && slices.Contains(at, e.rules.root) { // a text that is a list of events
			next = next.with(e.rules.root)
		}
		if !next.removed() {
			return e.value(next)
		}
		err := e.note(next)
		e.scan.Peek()
		from := e.scan.Pos()
		if err == nil {
			err = e.scan.Skip()
		}
		if err == nil {
			e.replace(from, e.scan.Pos(), "null")
		}
		return err
	})
}

// object removes members together with one of the commas around them: the one before, if a
// member before stays, and otherwise the one after.
func (e *editor) object(at places) error {
	var room few
	if err := e.scan.Open('{'); err != nil {
		return err
	}
	stays := false // whether a member does
	cut := -1      // where the members begin that are removed so far
	for i := 0; ; i++ {
		e.scan.Peek()
		end := e.scan.Pos() // the end of the previous member, or of the comma after it
		more, err := e.scan.More('}', i)
		if err != nil {
			return err
		}
		if cut >= 0 && (stays || !more) {
			e.replace(cut, e.trimmed(cut, end), "")
			cut = -1
		}
		if !more {
			return nil
		}
		start := e.scan.Pos()
		next, err := e.name(at, room[:0])
		if err != nil {
			return err
		}
		if next.removed() {
			if err := e.note(next); err != nil {
				return err
			}
			if stays {
				cut = end
			} else if cut < 0 {
				cut = start
			}
			if err := e.scan.Skip(); err != nil {
				return err
			}
			continue
		}
		if cut >= 0 { // the first one that is kept
			e.replace(cut, start, "")
			cut = -1
		}
		stays = true
		if err := e.value(next); err != nil {
			return err
		}
	}
}

// trimmed returns the end of the value before end, except for white space.
func (e *editor) trimmed(from, end int) int {
	for end > from && (e.body[end-1] == ' ' || e.body[end-1] == '\t' || e.body[end-1] == '\n' || e.body[end-1] == '\r') {
		end--
	}
	return end
}

// name reads a member's name, and appends the places of its value.
func (e *editor) name(at, next places) (places, error) {
	raw, err := e.scan.RawKey()
	if err != nil || len(at) == 0 {
		return nil, err
	}
	text, err := raw.AppendText(e.room[:0])
	if err != nil {
		return unreadable, nil //nolint:nilerr // a name that nobody can read is treated as one to redact
	}
	return at.named(next, appendFold(text[:0], text)), nil
}
