package datadog

import (
	"bytes"
	"time"

	"github.com/auditrelay/auditrelay/relay"
)

// body is the body of a request: a JSON array of entries. Its memory is used again by later
// requests, and by later deliveries.
type body struct {
	encoder    *encoder
	compressor *compressor
	text       []byte       // the entries, with one byte before the first and one after each
	ends       []int        // where each entry ends in text
	packed     bytes.Buffer // the bytes that were compressed last
}

// add encodes an entry. After an error the body is as it was.
func (b *body) add(e *relay.Event, now time.Time) (err error) {
	b.open()
	if b.text, err = b.encoder.appendEntry(b.text, e, now); err == nil {
		b.end()
	}
	return err
}

// addText adds an encoded entry.
func (b *body) addText(entry []byte) {
	b.open()
	b.text = append(b.text, entry...)
	b.end()
}

func (b *body) open() {
	if len(b.text) == 0 {
		b.text = append(b.text, '[')
	}
}

func (b *body) end() {
	b.text = append(b.text, ',')
	b.ends = append(b.ends, len(b.text))
}

// size returns the body's length before compression.
func (b *body) size() int { return len(b.text) }

// start returns where entry i begins in text.
func (b *body) start(i int) int {
	if i == 0 {
		return len("[")
	}
	return b.ends[i-1]
}

// entry returns the text of entry i.
func (b *body) entry(i int) []byte { return b.text[b.start(i) : b.ends[i]-1] }

// pack returns the array of the entries from low to high in the form in which it is sent, valid
// until the next call. Later calls must not reach beyond the range of earlier ones, since the
// brackets replace commas.
func (b *body) pack(low, high int) []byte {
	text := b.text[b.start(low)-1 : b.start(high)]
	text[0], text[len(text)-1] = '[', ']'
	return b.compressor.compress(&b.packed, text)
}

// maxKept is the size of the largest body whose memory is kept. An entry that is too large may
// take more while it is encoded.
const maxKept = 2 * maxRequestBytes

// reset removes the entries, and reports whether the memory is worth keeping.
func (b *body) reset() bool {
	b.text, b.ends = b.text[:0], b.ends[:0]
	return cap(b.text) <= maxKept
}
