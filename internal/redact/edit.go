package redact

import (
	"errors"

	"github.com/auditrelay/auditrelay/internal/wire/jsonscan"
)

// editor reads a body once, and copies what stays once it has found the first
// value that does not. It recurses as deep as pointers lead.
type editor struct {
	rules  *Rules
	body   []byte
	scan   jsonscan.Scanner
	out    []byte // nil as long as nothing has changed
	copied int    // of body, in out
	room   [128]byte
}

// errName says that redacting would be guessing: one reader may drop the bytes
// that are no text, and another replace them, and so read the very name.
var errName = errors.New("a member's name is not valid text")

// replace leaves out body[from:to], and writes with in its place.
func (e *editor) replace(from, to int, with string) {
	if e.out == nil {
		e.out = make([]byte, 0, len(e.body)+len(with))
	}
	e.out = append(e.out, e.body[e.copied:from]...)
	e.out = append(e.out, with...)
	e.copied = to
}

// value reads one value to its end; n is nil where no pointer leads to it.
func (e *editor) value(n *node) error {
	c := e.scan.Peek()
	switch {
	case n == nil:
		return e.scan.Skip()
	case n.ends:
		return e.hash()
	case c == '{':
		return e.object(n)
	case c == '[':
		return e.array(n)
	}
	return e.scan.Skip()
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

func (e *editor) array(n *node) error {
	if err := e.scan.Open('['); err != nil {
		return err
	}
	for i := 0; ; i++ {
		if more, err := e.scan.More(']', i); err != nil || !more {
			return err
		}
		next := n.element(i)
		if !next.doomed() {
			if err := e.value(next); err != nil {
				return err
			}
			continue
		}
		from := e.scan.Pos()
		if err := e.scan.Skip(); err != nil {
			return err
		}
		e.replace(from, e.scan.Pos(), "null")
	}
}

// object takes out members with one of the commas around them: the one before,
// if a member before stays, else the one behind.
func (e *editor) object(n *node) error {
	if err := e.scan.Open('{'); err != nil {
		return err
	}
	stays := false // a member does
	cut := -1      // where the members begin that go, up to now
	for i := 0; ; i++ {
		e.scan.Peek()
		end := e.scan.Pos() // of the member before, or the comma behind it
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
		next, err := e.name(n)
		if err != nil {
			return err
		}
		if next.doomed() {
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
		if cut >= 0 { // the first that stays
			e.replace(cut, start, "")
			cut = -1
		}
		stays = true
		if err := e.value(next); err != nil {
			return err
		}
	}
}

// trimmed gives the end of the value that ends before end but for white space.
func (e *editor) trimmed(from, end int) int {
	for end > from && (e.body[end-1] == ' ' || e.body[end-1] == '\t' || e.body[end-1] == '\n' || e.body[end-1] == '\r') {
		end--
	}
	return end
}

// name reads a member's name, and gives the node that it leads to.
func (e *editor) name(n *node) (*node, error) {
	raw, err := e.scan.RawKey()
	if err != nil {
		return nil, err
	}
	if raw.ASCII && !raw.Escaped {
		return n.member(raw.Bytes), nil
	}
	text, err := raw.AppendText(e.room[:0])
	if err != nil {
		return nil, errName
	}
	return n.member(text), nil
}
