package jsontext

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
		r, w = moveBlocks(buf, r, w)
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
		default: // where moveWords stopped
			seen |= uint64(c)
			buf[w] = c
			w, r = w+1, r+1
		}
	}
}

// moveBlocks moves ASCII from r to w, with quotes and backslashes that are escaped, a block at a
// time. It stops before a block with anything else, and where less than a block is left.
//
// A push spends much of its time here: a log line is full of escaped quotes, a few bytes apart.
// Going from one to the next, a processor often guesses wrong how far away it is. So what is
// done with a block depends on nothing in it, except whether it is of this kind.
func moveBlocks(buf []byte, r, w int) (int, int) {
	for r+blockSize <= len(buf) {
		escapes, ok := plainEscapes((*[blockSize]byte)(buf[r : r+blockSize]))
		if !ok {
			break
		}
		for i := 0; i < blockSize; i += 8 {
			remove := &removals[escapes>>i&0xff]
			word := binary.LittleEndian.Uint64(buf[r+i : r+i+8])
			binary.LittleEndian.PutUint64(buf[w:w+8], remove.from(word))
			w += remove.left
		}
		r += blockSize
		if escapes>>(blockSize-1) != 0 { // what it escapes is in the next block
			r--
			buf[r] = '\\' // the last word may lie over it
		}
	}
	return r, w
}

// blockSize is as many bytes as a word has bits.
const blockSize = 64

// plainEscapes returns a bit for each backslash of b that escapes the byte after it. ok means that
// b is ASCII without control characters, and that it escapes all of its quotes, and nothing but
// quotes and backslashes.
func plainEscapes(b *[blockSize]byte) (escapes uint64, ok bool) {
	var slashes, bad, differ uint64
	before := uint64(0x80) // not a backslash
	for i := 0; i < blockSize; i += 8 {
		word := binary.LittleEndian.Uint64(b[i : i+8])
		noSlash, noQuote := butFor(word, '\\'), butFor(word, '"')
		bad |= word | ^(word + ones*(0x80-' '))
		differ |= (noSlash<<8 | before) ^ noQuote
		before = noSlash >> 56
		slashes |= eachTop(noSlash^high) << i
	}
	if slashes&(slashes<<1) != 0 && bad&high == 0 {
		return escapesInRows(b, slashes)
	}
	return slashes, (bad&high | differ) == 0 // a quote is after each backslash, and nowhere else
}

// escapesInRows is plainEscapes for the case that backslashes are escaped too: of those in a row
// each other one escapes. An addition carries over whole rows (Langdale and Lemire, Parsing
// Gigabytes of JSON per Second, 3.1.1).
func escapesInRows(b *[blockSize]byte, slashes uint64) (escapes uint64, ok bool) {
	const even = 0x5555555555555555
	var quotes uint64
	for i := 0; i < blockSize; i += 8 {
		quotes |= eachTop(butFor(binary.LittleEndian.Uint64(b[i:i+8]), '"')^high) << i
	}
	after := slashes << 1
	oddRows := slashes &^ even &^ after // where they begin
	escaped := (even ^ (oddRows+slashes)<<1) & after
	return slashes &^ escaped, quotes&^escaped|escaped&^(quotes|slashes) == 0
}

// butFor sets the top bit of each byte that is not c, if all bytes are ASCII.
func butFor(word uint64, c byte) uint64 { return (word ^ ones*uint64(c) + ones*0x7f) & high }

// eachTop collects the top bits of the bytes of w, which has no others.
func eachTop(w uint64) uint64 { return w >> 7 * 0x0102040810204080 >> 56 }

// removal takes a set of bytes out of a word.
type removal struct {
	keep           uint64 // the bytes that stay
	one, two, four uint64 // those that move down by so many places, one step after the other
	left           int    // how many stay
}

// removals has the removal of each set.
var removals = func() (all [256]removal) {
	for set := range all {
		for i := range 8 {
			if set>>i&1 == 0 {
				all[set].keeps(i)
			}
		}
	}
	return all
}()

// keeps is called for the bytes that stay, from the first to the last.
func (r *removal) keeps(i int) {
	r.keep |= 0xff << (8 * i)
	for step, moved := range []*uint64{&r.one, &r.two, &r.four} {
		if (i-r.left)>>step&1 != 0 {
			*moved |= 0xff << (8 * i)
			i -= 1 << step
		}
	}
	r.left++
}

// from returns the bytes of word that stay.
func (r *removal) from(word uint64) uint64 {
	word &= r.keep
	one := word & r.one
	word ^= one ^ one>>8
	two := word & r.two
	word ^= two ^ two>>16
	four := word & r.four
	return word ^ four ^ four>>32
}

// moveWords moves plain characters, and the bytes of one-letter escapes, from r to w. It stops
// before anything else, after about a block, and where less than a word and an escape is left.
func moveWords(buf []byte, r, w int, seen uint64) (int, int, uint64) {
	for end := min(r+blockSize, len(buf)-9); r < end; {
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

// AppendString appends text as a JSON string. It escapes control characters, and the characters
// that some readers of lines take for line ends. JSON has no form for bytes outside UTF-8, so
// each becomes U+FFFD.
func AppendString[S ~string | ~[]byte](dst []byte, text S) []byte {
	dst = append(dst, '"')
	plain := 0 // text[plain:i] is not appended yet
	for i := 0; i < len(text); {
		c := text[i]
		if c >= ' ' && c != '"' && c != '\\' && c < 0x7f {
			i++
			continue
		}
		dst = append(dst, text[plain:i]...)
		if c < utf8.RuneSelf {
			dst = appendEscape(dst, c)
			i++
		} else {
			r, size := utf8.DecodeRuneInString(string(text[i:min(i+utf8.UTFMax, len(text))]))
			dst = appendRune(dst, r)
			i += size
		}
		plain = i
	}
	return append(append(dst, text[plain:]...), '"')
}

func appendEscape(dst []byte, c byte) []byte {
	const hex = "0123456789abcdef"
	switch c {
	case '"', '\\':
		return append(dst, '\\', c)
	case '\n':
		return append(dst, `\n`...)
	}
	return append(append(dst, `\u00`...), hex[c>>4], hex[c&15])
}

func appendRune(dst []byte, r rune) []byte {
	switch r {
	case 0x85:
		return append(dst, `\u0085`...)
	case 0x2028:
		return append(dst, `\u2028`...)
	case 0x2029:
		return append(dst, `\u2029`...)
	}
	return utf8.AppendRune(dst, r)
}
