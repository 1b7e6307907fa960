package datadog

import (
	"bytes"
	"time"

	"github.com/auditrelay/auditrelay/relay"
	"github.com/auditrelay/auditrelay/sinks/datadog/entry"
)

// body is what a request carries: a JSON array of entries. Its memory is used
// again by later requests, and by later deliveries.
type body struct {
	compressor *compressor
	text       []byte       // the entries; one byte stands before the first and behind each
	ends       []int        // in text, of each entry and the byte behind it
	packed     bytes.Buffer // what was compressed last
}

// add encodes an entry. After an error the body is as it was.
func (b *body) add(m *entry.Maker, e *relay.Event, now time.Time) error {
	if len(b.text) == 0 {
		b.text = append(b.text, '[')
	}
	text, err := m.Append(b.text, e, now)
	b.text = text
	if err == nil {
		b.text = append(b.text, ',')
		b.ends = append(b.ends, len(b.text))
	}
	return err
}

// size is how long the body is before compression.
func (b *body) size() int { return len(b.text) }

// start is where entry i stands in text.
func (b *body) start(i int) int {
	if i == 0 {
		return len("[")
	}
	return b.ends[i-1]
}

// pack returns the array of the entries from low to high as it is sent, valid until
// the next call. What was packed later must not reach beyond what was packed
// before: its brackets replace commas.
func (b *body) pack(low, high int) []byte {
	text := b.text[b.start(low)-1 : b.start(high)]
	text[0], text[len(text)-1] = '[', ']'
	return b.compressor.compress(&b.packed, text)
}

// drop removes the first n entries.
func (b *body) drop(n int) {
	if n == len(b.ends) {
		b.text, b.ends = b.text[:0], b.ends[:0]
		return
	}
	gone := b.start(n) - len("[")
	b.text = b.text[:copy(b.text, b.text[gone:])]
	b.ends = b.ends[:copy(b.ends, b.ends[n:])]
	for i := range b.ends {
		b.ends[i] -= gone
	}
}

// maxKept is the largest body whose memory is kept. One entry may be larger
// while it is encoded, until it turns out to be too large.
const maxKept = 2 * entry.MaxRequestBytes

// release keeps a body's memory for a later delivery.
func (s *Sink) release(b *body) {
	if cap(b.text) <= maxKept {
		b.drop(len(b.ends))
		s.bodies.Put(b)
	}
}
