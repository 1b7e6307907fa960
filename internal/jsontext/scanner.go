// Package jsontext reads, compares and writes JSON texts (RFC 8259).
//
// Its [Scanner] reads a text in one pass over the bytes, without allocating, because encoding/json
// is too slow for push bodies. It is a scanner, not a decoder: it leaves the meaning of a text to
// its callers. It is as strict as encoding/json about the grammar, and stricter about text. It
// reports a string of invalid UTF-8, and one that escapes half of a surrogate pair, where
// encoding/json would insert U+FFFD. A [Pointer] finds a value in a body in one pass.
//
// [Diff] compares two states by meaning: a [Schema] marks arrays as sets, or as lists of elements
// with a key. [Canonical] is the canonical form of a state.
package jsontext

import (
	"errors"
	"fmt"
	"strconv"
)

// MaxDepth bounds the depth of arrays and objects in a value that is skipped.
const MaxDepth = 512

// Errors of a string's content. The scanner is then at the end of the string, so that a caller
// can go on.
var (
	ErrUTF8      = errors.New("text is not valid UTF-8")
	ErrSurrogate = errors.New("text escapes half of a surrogate pair")
	ErrLong      = errors.New("text is too long to be read")
)

// SyntaxError says that the text is not JSON. The scanner read nothing after Offset.
type SyntaxError struct {
	Offset int // the number of bytes before the fault
	Reason string
}

func (e *SyntaxError) Error() string {
	return fmt.Sprintf("invalid JSON at byte %d: %s", e.Offset, e.Reason)
}

// IsContent reports whether err is an error of a string's content. The scanner can go on after
// such a string.
func IsContent(err error) bool {
	return errors.Is(err, ErrUTF8) || errors.Is(err, ErrSurrogate) || errors.Is(err, ErrLong)
}

// Scanner reads a JSON text from its start to its end. The zero value reads the empty text.
type Scanner struct {
	buf   []byte
	pos   int
	guess int    // the longest string that AppendText has read
	seen  uint64 // the bytes of the strings combined by or, perhaps with some that follow them
}

// Reset makes s read buf from its start. Some methods write into buf.
func (s *Scanner) Reset(buf []byte) { s.buf, s.pos, s.seen = buf, 0, 0 }

// ASCII reports whether everything that was read is certainly ASCII. It may be false for ASCII
// too.
func (s *Scanner) ASCII() bool { return s.seen&high == 0 }

// Pos returns the offset of the next byte.
func (s *Scanner) Pos() int { return s.pos }

// Seek goes to an offset returned by Pos. Strings after it that were unescaped in place cannot
// be read again.
func (s *Scanner) Seek(pos int) { s.pos = pos }

// Peek skips white space, and returns the byte that follows without reading it, or 0 at the
// end.
func (s *Scanner) Peek() byte {
	for ; s.pos < len(s.buf); s.pos++ {
		switch c := s.buf[s.pos]; c {
		case ' ', '\t', '\n', '\r':
		default:
			return c
		}
	}
	return 0
}

// Open reads the bracket c, '[' or '{'.
func (s *Scanner) Open(c byte) error {
	if s.Peek() != c {
		return s.unexpected(string(c))
	}
	s.pos++
	return nil
}

// More goes to the next element of an array or member of an object, after n of them,
// and reports whether there is one. If not, it has read the bracket end.
func (s *Scanner) More(end byte, n int) (bool, error) {
	c := s.Peek()
	if c == end {
		s.pos++
		return false, nil
	}
	if n == 0 {
		return true, nil
	}
	if c != ',' {
		return false, s.unexpected(`"," or "` + string(end) + `"`)
	}
	s.pos++
	if s.Peek() == end {
		return false, s.unexpected("a value after the comma")
	}
	return true, nil
}

// Array reads an array. It calls each for the elements in turn, counted from 0, to read the value
// of one. An error of each ends the reading.
func (s *Scanner) Array(each func(i int) error) error { return s.each('[', ']', each) }

func (s *Scanner) each(start, end byte, each func(i int) error) error {
	if err := s.Open(start); err != nil {
		return err
	}
	for i := 0; ; i++ {
		if more, err := s.More(end, i); err != nil || !more {
			return err
		}
		if err := each(i); err != nil {
			return err
		}
	}
}

// Object reads an object as Array reads an array. The key is as it is written.
func (s *Scanner) Object(each func(key Raw) error) error {
	return s.each('{', '}', func(int) error {
		key, err := s.RawKey()
		if err != nil {
			return err
		}
		return each(key)
	})
}

// Members reads an object as Object does, with its keys unescaped in place. bad is an error of a
// key's content; the key is then nil.
func (s *Scanner) Members(each func(key []byte, bad error) error) error {
	return s.each('{', '}', func(int) error {
		key, bad := s.Unescape()
		if bad != nil && !IsContent(bad) {
			return bad
		}
		if err := s.colon(); err != nil {
			return err
		}
		return each(key, bad)
	})
}

// RawKey reads an object's key as it is written, and the colon that follows.
func (s *Scanner) RawKey() (Raw, error) {
	key, err := s.String()
	if err != nil {
		return Raw{}, err
	}
	return key, s.colon()
}

func (s *Scanner) colon() error {
	if s.Peek() != ':' {
		return s.unexpected(`":"`)
	}
	s.pos++
	return nil
}

// End checks that only white space is left.
func (s *Scanner) End() error {
	s.Peek()
	if s.pos != len(s.buf) {
		return s.unexpected("nothing")
	}
	return nil
}

// unexpected names the byte at the position where want was needed. It shows no more, since
// errors must not contain parts of a body.
func (s *Scanner) unexpected(want string) error {
	if s.pos >= len(s.buf) {
		return s.fail("it ends where " + want + " is needed")
	}
	return s.fail(fmt.Sprintf("%q stands where %s is needed", s.buf[s.pos], want))
}

func (s *Scanner) fail(reason string) error {
	return &SyntaxError{Offset: s.pos, Reason: reason}
}

// Skip reads one value of any kind, and checks its grammar. It does not recurse, and
// refuses a depth beyond MaxDepth.
func (s *Scanner) Skip() error {
	var ends [MaxDepth]byte // of the open arrays and objects, the innermost last
	for depth := 0; ; {
		read := 0 // at first, of what has just been opened
		switch c := s.Peek(); {
		case c != '{' && c != '[':
			if err := s.scalar(c); err != nil {
				return err
			}
			read = 1
		case depth == MaxDepth:
			return s.fail("it is nested deeper than " + strconv.Itoa(MaxDepth))
		default:
			ends[depth] = c + 2 // as '}' and ']' are
			depth++
			s.pos++
		}
		more := false
		for ; depth > 0 && !more; read = 1 {
			end, err := ends[depth-1], error(nil)
			if more, err = s.More(end, read); err != nil {
				return err
			}
			if !more {
				depth--
			} else if end == '}' {
				_, err = s.RawKey()
			}
			if err != nil {
				return err
			}
		}
		if !more {
			return nil
		}
	}
}

func (s *Scanner) scalar(c byte) error {
	switch {
	case c == '"':
		_, err := s.String()
		return err
	case c == 't':
		return s.literal("true")
	case c == 'f':
		return s.literal("false")
	case c == 'n':
		return s.literal("null")
	case c == '-' || '0' <= c && c <= '9':
		return s.number()
	}
	return s.unexpected("a value")
}

func (s *Scanner) literal(word string) error {
	if len(s.buf)-s.pos < len(word) || string(s.buf[s.pos:s.pos+len(word)]) != word {
		return s.fail("a value is needed")
	}
	s.pos += len(word)
	return nil
}

// number reads -?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?
func (s *Scanner) number() error {
	s.oneOf("-")
	if !s.oneOf("0") && s.digits() == 0 {
		return s.unexpected("a digit")
	}
	if s.oneOf(".") && s.digits() == 0 {
		return s.unexpected("a digit")
	}
	if s.oneOf("eE") {
		s.oneOf("+-")
		if s.digits() == 0 {
			return s.unexpected("a digit")
		}
	}
	return nil
}

func (s *Scanner) oneOf(set string) bool {
	for i := range len(set) {
		if s.pos < len(s.buf) && s.buf[s.pos] == set[i] {
			s.pos++
			return true
		}
	}
	return false
}

func (s *Scanner) digits() int {
	start := s.pos
	for s.pos < len(s.buf) && '0' <= s.buf[s.pos] && s.buf[s.pos] <= '9' {
		s.pos++
	}
	return s.pos - start
}

// Kind names the kind of a value by its first byte c, for errors.
func Kind(c byte) string {
	switch c {
	case '{':
		return "an object"
	case '[':
		return "an array"
	case '"':
		return "a string"
	case 't', 'f':
		return "a boolean"
	case 'n':
		return "null"
	}
	return "a number"
}
