package jsontext

import (
	"encoding/binary"
	"errors"
	"math/bits"
)

// Raw is a string as it is written between its quotes.
type Raw struct {
	Bytes   []byte
	Escaped bool // it contains a backslash
	ASCII   bool // certainly; may be unset for one with a backslash
}

// Is reports whether the string is text, each byte of which may be escaped with up to six.
func (r Raw) Is(text string) bool {
	if !r.Escaped {
		return string(r.Bytes) == text
	}
	if len(r.Bytes) > 6*len(text) {
		return false
	}
	var room [257]byte // one more, because AppendText needs it
	got, err := r.AppendText(room[:0])
	return err == nil && string(got) == text
}

// AppendText appends the string's text. Its error is ErrUTF8 or ErrSurrogate; dst is then
// returned as it was.
func (r Raw) AppendText(dst []byte) ([]byte, error) {
	start := len(dst)
	dst = append(dst, r.Bytes...)
	if !r.Escaped && r.ASCII {
		return dst, nil
	}
	dst = append(dst, '"') // unescapeFrom stops at it
	text := Scanner{buf: dst[start:]}
	got, err := text.unescapeFrom(0)
	if err != nil {
		return dst[:start], err
	}
	return dst[:start+len(got)], nil
}

// AppendText reads a string and appends its text to dst, and leaves the buffer unchanged. A
// string of more than most bytes between its quotes is ErrLong. With an error it returns dst as
// it was. After an error of the content the scanner is at the end of the string.
//
// It takes as long to find the string's end as to unescape it. So AppendText guesses the
// length, makes a cheap copy of that many bytes, and unescapes the copy in place. If the end is
// not in it, it copies more.
func (s *Scanner) AppendText(dst []byte, most int) ([]byte, error) {
	if s.Peek() != '"' {
		return dst, s.unexpected("a string")
	}
	const least = 1 << 10
	rest := s.buf[s.pos+1:]
	isCut := len(rest) > most+1 // including the quote
	if isCut {
		rest = rest[:most+1]
	}
	for n := max(s.guess, least); ; n *= 4 {
		n = min(n, len(rest))
		grown := append(dst, rest[:n]...)
		copied := Scanner{buf: grown[len(dst):]}
		text, err := copied.unescapeFrom(0)
		if err != nil && !IsContent(err) {
			if n < len(rest) {
				continue // perhaps it is only cut off here
			}
			if isCut {
				if _, err := s.String(); err != nil {
					return dst, err
				}
				return dst, ErrLong
			}
			s.pos += 1 + copied.pos
			return dst, s.at(err)
		}
		s.pos += 1 + copied.pos
		s.seen |= copied.seen
		if err != nil {
			return dst, err
		}
		s.guess = copied.pos + copied.pos/4
		return grown[:len(dst)+len(text)], nil
	}
}

// at adds the scanner's position to a syntax error.
func (s *Scanner) at(err error) error {
	if e, ok := errors.AsType[*SyntaxError](err); ok {
		return s.fail(e.Reason)
	}
	return err
}

// String reads a string and leaves it as it is written. Its grammar is checked, its content is
// not.
func (s *Scanner) String() (Raw, error) {
	if s.Peek() != '"' {
		return Raw{}, s.unexpected("a string")
	}
	buf, start := s.buf, s.pos+1
	raw := Raw{}
	var seen uint64
	for r := start; ; {
		if r+8 <= len(buf) {
			word := binary.LittleEndian.Uint64(buf[r:])
			k := bits.TrailingZeros64(special(word)) >> 3 // 8 if there is no mark
			r += k
			if k == 8 {
				seen |= word
				continue
			}
			seen |= word & (1<<(8*k) - 1)
		}
		s.pos = r
		if r >= len(buf) {
			return Raw{}, s.unexpected("the end of the string")
		}
		switch c := buf[r]; {
		case c == '"':
			s.pos = r + 1
			s.seen |= seen
			raw.Bytes, raw.ASCII = buf[start:r:r], seen&high == 0
			return raw, nil
		case c == '\\':
			raw.Escaped = true
			if r+1 < len(buf) && escapes[buf[r+1]] != 0 {
				r = skipBlocks(buf, r+2) // after one escape, others often follow
			} else if _, ok := hex4(buf[r:]); ok {
				r += 6
			} else {
				return Raw{}, s.fail("invalid escape in a string")
			}
		case c < ' ':
			return Raw{}, s.unexpected("a character that needs no escape")
		default: // among the last seven bytes
			seen |= uint64(c)
			r++
		}
	}
}

// skipBlocks passes over what moveBlocks would move.
func skipBlocks(buf []byte, r int) int {
	for r+blockSize <= len(buf) {
		escapes, ok := plainEscapes((*[blockSize]byte)(buf[r : r+blockSize]))
		if !ok {
			break
		}
		r += blockSize - int(escapes>>(blockSize-1)) // what a last backslash escapes is in the next block
	}
	return r
}
