package timeline

import (
	"bytes"
	"encoding/binary"
	"unicode"
	"unicode/utf8"
)

const (
	// A search for a text passes over most sentences of a long trail, a block of rows at a time.
	blockRows = 256
	// blockBits is 64 for each row, which is 8 bytes in memory.
	blockBits = 1 << 14
)

// grams are the runs of one to three bytes in a block's texts. A text stands nowhere in a block that
// lacks one of the text's own runs.
type grams [blockBits / 64]uint64

// The number of a run is that of its bytes. These tell short ones from those with zero bytes.
const (
	ofOne = 1 << 24
	ofTwo = 1 << 25
)

// add takes in a folded text.
func (g *grams) add(text []byte) {
	last := uint32(0)
	for i, b := range text {
		last = last<<8&0xffffff | uint32(b)
		g.set(bitOf(uint32(b) | ofOne))
		if i > 0 {
			g.set(bitOf(last&0xffff | ofTwo))
		}
		if i > 1 {
			g.set(bitOf(last))
		}
	}
}

// bitOf is the place of a run.
func bitOf(run uint32) uint16 { return uint16(run * 0x9e3779b1 >> 18) }

func (g *grams) set(bit uint16) { g[bit/64] |= 1 << (bit % 64) }

// bitsOf are those that a block with a folded text has. They are of its longest runs alone.
func bitsOf(text []byte) (bits []uint16) {
	switch len(text) {
	case 0:
		return nil
	case 1:
		return []uint16{bitOf(uint32(text[0]) | ofOne)}
	case 2:
		return []uint16{bitOf(uint32(text[0])<<8 | uint32(text[1]) | ofTwo)}
	}
	for i := range text[2:] {
		bits = append(bits, bitOf(uint32(text[i])<<16|uint32(text[i+1])<<8|uint32(text[i+2])))
	}
	return bits
}

// mayHave reports whether a block may have a text with these bits.
func (t *table) mayHave(block int64, bits []uint16) bool {
	if (block+1)*blockRows > t.n {
		return true
	}
	return t.blocks[block].mayHave(bits)
}

func (g *grams) mayHave(bits []uint16) bool {
	for _, bit := range bits {
		if g[bit/64]&(1<<(bit%64)) == 0 {
			return false
		}
	}
	return true
}

// phrase is a text that is looked for, in one block of rows after the other.
type phrase struct {
	text  []byte // folded; empty is in every row
	bits  []uint16
	block int64 // the one that the fields below are of; -1 before the first one
	hits  [blockRows]bool
	low   []byte // the folded texts of its rows, one after the other
	ends  []int  // of each of them
}

func phraseOf(text string) phrase {
	folded := appendFolded(nil, []byte(text))
	return phrase{text: folded, bits: bitsOf(folded), block: -1}
}

// isIn reports whether a row has the phrase.
func (p *phrase) isIn(r *reading, index int64) (bool, error) {
	if len(p.text) == 0 {
		return true, nil
	}
	if block := index / blockRows; block != p.block {
		if err := p.look(r, block); err != nil {
			return false, err
		}
		p.block = block
	}
	return p.hits[index%blockRows], nil
}

// look finds the rows of a block that have the phrase.
func (p *phrase) look(r *reading, block int64) error {
	clear(p.hits[:])
	if !r.table.mayHave(block, p.bits) {
		return nil
	}
	if err := p.read(r, block*blockRows, min((block+1)*blockRows, r.table.n)); err != nil {
		return err
	}
	for at, row := 0, 0; ; {
		found := bytes.Index(p.low[at:], p.text)
		if found < 0 {
			return nil
		}
		for at += found; p.ends[row] <= at; {
			row++
		}
		if at+len(p.text) > p.ends[row] { // it begins in one text, and ends in another
			at++
			continue
		}
		p.hits[row], at = true, p.ends[row]
	}
}

// read folds the texts of some rows.
func (p *phrase) read(r *reading, first, end int64) error {
	p.low, p.ends = p.low[:0], p.ends[:0]
	for index := first; index < end; index++ {
		if row := r.table.at(index); row.Length > 0 {
			text, err := r.texts.read(row.Text, int(row.Length))
			if err != nil {
				return err
			}
			p.low = appendFolded(p.low, text)
		}
		p.ends = append(p.ends, len(p.low))
	}
	return nil
}

// appendFolded appends a text with its letters in lower case. Every letter keeps its length: one
// whose lower case is longer or shorter stays as it is. ASCII is taken eight bytes at a time, as all
// sentences of a long trail may be searched while somebody waits.
func appendFolded(dst, text []byte) []byte {
	from := len(dst)
	dst = append(dst, text...)
	for b := dst[from:]; len(b) > 0; {
		if n := foldWords(b); n > 0 {
			b = b[n:]
			continue
		}
		if b[0] < utf8.RuneSelf {
			if 'A' <= b[0] && b[0] <= 'Z' {
				b[0] += 'a' - 'A'
			}
			b = b[1:]
			continue
		}
		r, n := utf8.DecodeRune(b)
		if low := unicode.ToLower(r); low != r && utf8.RuneLen(low) == n {
			utf8.EncodeRune(b, low)
		}
		b = b[n:]
	}
	return dst
}

// foldWords folds as many whole words of ASCII as stand at the start of a text.
func foldWords(b []byte) (n int) {
	const ones = 0x0101010101010101
	for ; n+8 <= len(b); n += 8 {
		x := binary.NativeEndian.Uint64(b[n:])
		if x&(0x80*ones) != 0 {
			break
		}
		upper := (x + (0x80-'A')*ones) ^ (x + (0x80-'Z'-1)*ones) // its highest bits
		binary.NativeEndian.PutUint64(b[n:], x|upper&(0x80*ones)>>2)
	}
	return n
}
