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

// has reports whether all runs of a text are in the block.
func (g *grams) has(text *grams) bool {
	for i, bits := range text {
		if bits&^g[i] != 0 {
			return false
		}
	}
	return true
}

// phrase is a text that is looked for.
type phrase struct {
	text   []byte // folded; empty is in every row
	runs   grams
	block  int64 // the one that was looked at last; -1 before the first one
	may    bool  // a row of it may have the phrase
	folded []byte
}

func phraseOf(text string) phrase {
	p := phrase{text: appendFolded(nil, []byte(text)), block: -1}
	p.runs.add(p.text)
	return p
}

// isIn reports whether a row has the phrase.
func (p *phrase) isIn(r *reading, index int64) (bool, error) {
	if len(p.text) == 0 {
		return true, nil
	}
	if block := index / blockRows; block != p.block {
		p.block, p.may = block, p.mayBeIn(&r.table, block)
	}
	row := r.table.at(index)
	if !p.may || int(row.Length) < len(p.text) {
		return false, nil
	}
	text, err := r.texts.read(row.Text, int(row.Length))
	p.folded = appendFolded(p.folded[:0], text)
	return bytes.Contains(p.folded, p.text), err
}

// mayBeIn reports whether a row of a block may have the phrase. The keeper may be adding to the last one.
func (p *phrase) mayBeIn(t *table, block int64) bool {
	return (block+1)*blockRows > t.n || t.blocks[block].has(&p.runs)
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
