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
