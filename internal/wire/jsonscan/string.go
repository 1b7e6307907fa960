package jsonscan

import (
	"encoding/binary"
	"math/bits"
	"unicode/utf8"
)

// Eight bytes are looked at in one word: ones has 1 and high has the top bit in
// each byte.
const (
	ones = 0x0101010101010101
	high = 0x8080808080808080
)

// special marks, by its top bit, the first byte of w that is a quote, a
// backslash or a control character. Bytes above the first may be marked wrongly.
func special(w uint64) uint64 {
	quote, slash := w^ones*'"', w^ones*'\\'
	return ((quote-ones)&^quote | (slash-ones)&^slash | (w-ones*' ')&^w) & high
}

// escapes gives the byte that a one-letter escape stands for, 0 for no escape.
var escapes = [256]byte{
	'"': '"', '\\': '\\', '/': '/', 'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t',
}

// Unescape reads a string, and returns its text, which takes the place of the
// escaped one in the buffer. On ErrUTF8 and ErrSurrogate the scanner stands
// behind the string.
func (s *Scanner) Unescape() ([]byte, error) {
	if s.Peek() != '"' {
		return nil, s.unexpected("a string")
	}
	return s.unescapeFrom(s.pos + 1)
}

// unescapeFrom does it for the string whose text begins at start.
func (s *Scanner) unescapeFrom(start int) ([]byte, error) {
	buf, r, w := s.buf, start, start // read and write offsets, w ≤ r
	var seen uint64                  // all plain bytes or'ed, for those that are not ASCII
	var bad error
	for {
		if r+8 <= len(buf) {
			word := binary.LittleEndian.Uint64(buf[r:])
			k := bits.TrailingZeros64(special(word)) >> 3 // 8 for no mark
			if k < 8 {
				word &= 1<<(8*k) - 1
			}
			seen |= word
			moveWord(buf, w, r, k, word)
			w, r = w+k, r+k
			if k == 8 {
				continue
			}
		} else if r >= len(buf) {
			s.pos = r
			return nil, s.unexpected("the end of the string")
		}
		switch c := buf[r]; {
		case c == '\\' && r+1 < len(buf) && escapes[buf[r+1]] != 0:
			buf[w] = escapes[buf[r+1]]
			w, r = w+1, r+2
		case c == '\\':
			var err error
			if w, r, err = s.unescapeRune(w, r); IsContent(err) {
				bad = err
			} else if err != nil {
				return nil, err
			}
		case c == '"':
			s.pos = r + 1
			return checkText(buf[start:w:w], seen, bad)
		case c < ' ':
			s.pos = r
			return nil, s.unexpected("a character that needs no escape")
		default: // among the last seven bytes
			seen |= uint64(c)
			buf[w] = c
			w, r = w+1, r+1
		}
	}
}

// moveWord writes the first k bytes of word, which were read at r, to w. A
// whole word may be written only where that does not touch what is still to be
// read: everything from r+k on.
func moveWord(buf []byte, w, r, k int, word uint64) {
	switch {
	case w == r:
	case k == 8 || r-w >= 8:
		binary.LittleEndian.PutUint64(buf[w:], word)
	default:
		for i := range k {
			buf[w+i] = byte(word)
			word >>= 8
		}
	}
}

func checkText(text []byte, seen uint64, bad error) ([]byte, error) {
	if bad != nil {
		return nil, bad
	}
	if seen&high != 0 && !utf8.Valid(text) {
		return nil, ErrUTF8
	}
	return text, nil
}

// unescapeRune writes the rune that is escaped at r, with \u, to w. It returns
// the offsets behind both.
func (s *Scanner) unescapeRune(w, r int) (_, _ int, _ error) {
	c, n, ok := runeAt(s.buf[r:])
	if !ok {
		s.pos = r
		return w, r, s.fail("invalid escape in a string")
	}
	if c < 0 {
		return w, r + n, ErrSurrogate
	}
	return w + utf8.EncodeRune(s.buf[w:r+n], c), r + n, nil
}

// runeAt reads one escape of the form \uXXXX, or two that are a surrogate pair,
// and returns the rune and the bytes read. The rune is -1 for half a pair.
func runeAt(b []byte) (c rune, n int, ok bool) {
	c, ok = hex4(b)
	if !ok || c < 0xd800 || c > 0xdfff {
		return c, 6, ok
	}
	if low, ok := hex4(b[6:]); ok && c < 0xdc00 && low >= 0xdc00 && low <= 0xdfff {
		return 0x10000 + (c-0xd800)<<10 + (low - 0xdc00), 12, true
	}
	return -1, 6, true
}

// hex4 reads \uXXXX at the start of b.
func hex4(b []byte) (rune, bool) {
	if len(b) < 6 || b[0] != '\\' || b[1] != 'u' {
		return 0, false
	}
	var v rune
	for _, c := range b[2:6] {
		switch {
		case '0' <= c && c <= '9':
			v = v<<4 + rune(c-'0')
		case 'a' <= c|0x20 && c|0x20 <= 'f':
			v = v<<4 + rune(c|0x20-'a'+10)
		default:
			return 0, false
		}
	}
	return v, true
}
