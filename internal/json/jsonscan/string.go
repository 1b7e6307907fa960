package jsonscan

import (
	"bytes"
	"encoding/binary"
	"math/bits"
	"unicode/utf8"
)

// Eight bytes are examined at once as one word: ones has 1, and high has the top bit, in each
// byte.
const (
	ones = 0x0101010101010101
	high = 0x8080808080808080
)

// special sets the top bit of the first quote, backslash or control character in w. Bytes
// above the first may be marked wrongly.
func special(w uint64) uint64 {
	quote, slash := w^ones*'"', w^ones*'\\'
	return ((quote-ones)&^quote | (slash-ones)&^slash | (w-ones*' ')&^w) & high
}

// escapes maps a one-letter escape to its byte, and everything else to 0.
var escapes = [256]byte{
	'"': '"', '\\': '\\', '/': '/', 'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t',
}

// Unescape reads a string, and returns its text, which takes the place of the escaped one in
// the buffer. On ErrUTF8 and ErrSurrogate the scanner is at the end of the string.
func (s *Scanner) Unescape() ([]byte, error) {
	if s.Peek() != '"' {
		return nil, s.unexpected("a string")
	}
	return s.unescapeFrom(s.pos + 1)
}

// unescapeFrom is Unescape for the string whose text begins at start.
func (s *Scanner) unescapeFrom(start int) ([]byte, error) {
	buf, r, w := s.buf, start, start // read and write offsets, w ≤ r
	var seen uint64                  // the plain bytes combined by or, to notice those outside ASCII
	var bad error
	for {
		r, w, seen = moveBlocks(buf, r, w, seen)
		r, w, seen = moveWords(buf, r, w, seen)
		if r >= len(buf) {
			s.pos = r
			return nil, s.unexpected("the end of the string")
		}
		switch c := buf[r]; {
		case c == '\\':
			var err error
			if w, r, err = s.unescapeRune(w, r); IsContent(err) {
				bad = err
			} else if err != nil {
				return nil, err
			}
		case c == '"':
			s.pos = r + 1
			s.seen |= seen
			return checkText(buf[start:w:w], seen, bad)
		case c < ' ':
			s.pos = r
			return nil, s.unexpected("a character that needs no escape")
		default: // among the last nine bytes
			seen |= uint64(c)
			buf[w] = c
			w, r = w+1, r+1
		}
	}
}

// moveBlocks moves plain characters, and the bytes of one-letter escapes, from r to w. It stops
// before anything else, and where less than a block and an escape is left.
//
// A push spends much of its time here: a log line is full of escaped quotes, a few bytes apart.
// Finding them one by one means to wait for each before the search for the next can begin; so
// all of a block are found first, which waits for nothing.
func moveBlocks(buf []byte, r, w int, seen uint64) (int, int, uint64) {
	for r+blockSize+maxRun <= len(buf) { // a run may be read beyond the block's end
		end := r + blockSize
		marks, all := blockMarks((*[blockSize]byte)(buf[r:end]))
		seen |= all // this may include bytes after the string: at worst, text is examined once more
		for base := r; marks != 0; {
			at := base + bits.TrailingZeros64(marks)
			moveRun(buf, w, r, at-r)
			w, r = w+at-r, at
			c := escapes[buf[r+1]]
			if buf[r] != '\\' || c == 0 {
				return r, w, seen
			}
			buf[w] = c
			w, r = w+1, r+2
			marks &= marks - 1
			marks &^= 1 << (r - 1 - base) // the escaped character, which may be in the next block
		}
		if r < end {
			moveRun(buf, w, r, end-r)
			w, r = w+end-r, end
		}
	}
	return r, w, seen
}

// blockSize is as many bytes as a word has bits.
const blockSize = 64

// maxRun is the longest run that is moved as two words.
const maxRun = 16

// blockMarks has a bit for each quote, backslash or control character of b, the first in the
// lowest bit. all is the words of the block combined by or.
func blockMarks(b *[blockSize]byte) (marks, all uint64) {
	for i := 0; i < blockSize; i += 8 {
		word := binary.LittleEndian.Uint64(b[i : i+8])
		all |= word
		// Without the top bit of each byte, no sum runs over into the next byte.
		ascii := word &^ high
		// With one bit flipped, a quote takes the place of the space, just above the control
		// characters.
		plain := (ascii ^ ones*('"'^' ')) + ones*(0x7f-' ')
		plain &= (ascii ^ ones*'\\') + ones*0x7f
		plain |= word // not ASCII
		marks |= (^plain & high >> 7 * 0x0102040810204080 >> 56) << i
	}
	return marks, all
}

// moveRun moves n bytes from r to w. It may write to anything between w+n and r+n.
func moveRun(buf []byte, w, r, n int) {
	if n > maxRun || r-w+n < maxRun {
		copy(buf[w:w+n], buf[r:r+n])
		return
	}
	from, to := buf[r:r+maxRun], buf[w:w+maxRun] // most runs are short, and moving two words costs less than counting
	first, second := binary.LittleEndian.Uint64(from), binary.LittleEndian.Uint64(from[8:])
	binary.LittleEndian.PutUint64(to, first)
	binary.LittleEndian.PutUint64(to[8:], second)
}

// moveWords does what moveBlocks does, for less than a block.
func moveWords(buf []byte, r, w int, seen uint64) (int, int, uint64) {
	for r+10 <= len(buf) {
		word := binary.LittleEndian.Uint64(buf[r:])
		mark := special(word)
		seen |= word
		if mark == 0 {
			binary.LittleEndian.PutUint64(buf[w:], word)
			w, r = w+8, r+8
			continue
		}
		k := bits.TrailingZeros64(mark) >> 3
		plain := uint64(1)<<(8*k) - 1 // the bytes after w+k may not have been read yet
		to := buf[w : w+8]
		binary.LittleEndian.PutUint64(to, binary.LittleEndian.Uint64(to)&^plain|word&plain)
		w, r = w+k, r+k
		c := escapes[buf[r+1]]
		if buf[r] != '\\' || c == 0 {
			break
		}
		buf[w] = c
		w, r = w+1, r+2
	}
	return r, w, seen
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

// unescapeRune writes the rune of the escape at r to w. It returns the offsets after both.
func (s *Scanner) unescapeRune(w, r int) (_, _ int, _ error) {
	if r+1 < len(s.buf) && escapes[s.buf[r+1]] != 0 {
		s.buf[w] = escapes[s.buf[r+1]]
		return w + 1, r + 2, nil
	}
	c, n, ok := EscapedRune(s.buf[r:])
	if !ok {
		s.pos = r
		return w, r, s.fail("invalid escape in a string")
	}
	if c < 0 {
		return w, r + n, ErrSurrogate
	}
	return w + utf8.EncodeRune(s.buf[w:r+n], c), r + n, nil
}

// EscapedRune reads one escape of the form \uXXXX at the start of b, or two of a surrogate pair,
// and returns the rune and the bytes read. The rune is -1 for half a pair.
func EscapedRune(b []byte) (c rune, n int, ok bool) {
	c, ok = hex4(b)
	if !ok || c < 0xd800 || c > 0xdfff {
		return c, 6, ok
	}
	if low, ok := hex4(b[6:]); ok && c < 0xdc00 && low >= 0xdc00 && low <= 0xdfff {
		return 0x10000 + (c-0xd800)<<10 + (low - 0xdc00), 12, true
	}
	return -1, 6, true
}

// HalfPair reports whether text, which is valid JSON, escapes half of a surrogate pair.
func HalfPair(text []byte) bool {
	for {
		at := bytes.IndexByte(text, '\\')
		if at < 0 {
			return false
		}
		text = text[at:]
		c, n, ok := EscapedRune(text)
		if c < 0 {
			return true
		}
		if !ok { // an escape of one letter
			n = len(`\n`)
		}
		text = text[n:]
	}
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
