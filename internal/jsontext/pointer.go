package jsontext

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Pointer is a JSON pointer (RFC 6901): it names a value in a JSON text. The zero value is the pointer "", which names the
// whole. It is not changed once made, and may be used by several goroutines.
type Pointer struct {
	text   string
	tokens []token
}

// token is one step of a pointer, into an object or an array.
type token struct {
	name  string // unescaped
	index int    // -1 if the name is not an index of an array
}

// ParsePointer reads a pointer such as /user/id or /groups/0. "~1" stands for "/" in a name,
// and "~0" for "~". The error names the column; columns count characters from 1.
func ParsePointer(text string) (Pointer, error) {
	p := Pointer{text: text}
	if text == "" {
		return p, nil
	}
	if text[0] != '/' {
		return Pointer{}, fmt.Errorf(`column 1: a JSON pointer begins with "/", as in /user/id; this begins with %q`, firstRune(text))
	}
	if at, err := misspelt(text); err != nil {
		return Pointer{}, fmt.Errorf("column %d: %w", utf8.RuneCountInString(text[:at])+1, err)
	}
	unescape := strings.NewReplacer("~1", "/", "~0", "~")
	for name := range strings.SplitSeq(text[1:], "/") {
		name = unescape.Replace(name)
		p.tokens = append(p.tokens, token{name: name, index: indexOf(name)})
	}
	return p, nil
}

// String returns the pointer as it was parsed.
func (p Pointer) String() string { return p.text }

func firstRune(text string) rune {
	r, _ := utf8.DecodeRuneInString(text)
	return r
}

// misspelt returns the first misplaced byte of text.
func misspelt(text string) (at int, _ error) {
	for i, r := range text {
		switch {
		case r == '~' && !strings.HasPrefix(text[i:], "~0") && !strings.HasPrefix(text[i:], "~1"):
			return i, errors.New(`"~" must be followed by 0, for a "~" in a name, or by 1, for a "/"`)
		case r == utf8.RuneError && !strings.HasPrefix(text[i:], "\ufffd"):
			return i, errors.New("it is not valid UTF-8")
		}
	}
	return 0, nil
}

// Tokens yields the steps of p from the outside in: the unescaped name of each, and its index,
// or -1 if the name is not an index of an array.
func (p Pointer) Tokens(yield func(name string, index int) bool) {
	for _, t := range p.tokens {
		if !yield(t.name, t.index) {
			return
		}
	}
}

// indexOf reads an array index: digits without a leading zero. "-", the place after the last
// element, is no index, since there is never a value there.
func indexOf(name string) int {
	if name == "" || len(name) > 1 && name[0] == '0' || strings.Trim(name, "0123456789") != "" {
		return -1
	}
	n, err := strconv.Atoi(name)
	if err != nil {
		return -1 // no array is so long
	}
	return n
}

// Find returns the value that p names, as it is written in body. The result is a part of body,
// without capacity to append in place.
//
// ok is false if there is no such value, if body is not JSON to its very end, and if a value
// that p does not lead through nests deeper than MaxDepth. Of several members with the
// same name the last counts, as in encoding/json, whatever the earlier ones contain. Names are
// compared by their text, escaped or not; an invalid text equals none.
//
// It reads body once and does not write to it. For valid JSON it allocates nothing, except for
// names of more than 256 bytes that have escapes.
func (p Pointer) Find(body []byte) (raw []byte, ok bool) {
	var s Scanner
	s.Reset(body)
	raw, err := s.find(p.tokens)
	if err != nil || s.End() != nil {
		return nil, false
	}
	return raw, raw != nil
}

// find reads one value to its end, and returns the value that tokens lead to from there, or nil if
// there is none. An object is read to its end, since a later member may repeat a name.
func (s *Scanner) find(tokens []token) (found []byte, err error) {
	switch c := s.Peek(); {
	case len(tokens) == 0:
		start := s.pos
		err = s.Skip()
		return s.buf[start:s.pos:s.pos], err
	case c == '{':
		err = s.Object(func(key Raw) (err error) {
			if !key.Is(tokens[0].name) {
				return s.Skip()
			}
			found, err = s.find(tokens[1:])
			return err
		})
	case c == '[' && tokens[0].index >= 0:
		err = s.Array(func(i int) (err error) {
			if i != tokens[0].index {
				return s.Skip()
			}
			found, err = s.find(tokens[1:])
			return err
		})
	default:
		err = s.Skip()
	}
	return found, err
}

// AppendValue appends the value in raw, from [Pointer.Find], as text: a string unescaped, and a
// number, true or false as written.
//
// ok is false, and dst is returned as it was, for values that have no text: null, which means
// no value; objects and arrays, which can be written in many ways; and strings with invalid
// UTF-8 or half of a surrogate pair.
func AppendValue(dst, raw []byte) (_ []byte, ok bool) {
	if len(raw) == 0 {
		return dst, false
	}
	switch raw[0] {
	case '{', '[', 'n':
		return dst, false
	case '"':
		var s Scanner
		s.Reset(raw)
		text, err := s.String()
		if err == nil {
			dst, err = text.AppendText(dst)
		}
		return dst, err == nil
	}
	return append(dst, raw...), true
}
