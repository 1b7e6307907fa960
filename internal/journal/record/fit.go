package record

import (
	"encoding/binary"
	"errors"
	"fmt"
	"unsafe"

	"github.com/auditrelay/auditrelay/relay"
)

// ErrTooLarge means that an event, with its labels, is too large for the server.
var ErrTooLarge = errors.New("event is too large for the journal")

// Fit returns a batch of the same events in segments of at most limit bytes. This is b
// itself, unless the limit is below a usual segment.
func Fit(b *Batch, limit int) (*Batch, error) {
	if b.longest() <= limit {
		return b, nil
	}
	cut, err := recut(b, limit)
	if err != nil {
		return nil, err
	}
	if n := cut.longest(); n > limit { // this segment is one event
		return nil, fmt.Errorf("%w: one of its events takes %d bytes with its attributes and labels, and the journal takes %d at most", ErrTooLarge, n, limit)
	}
	return cut, nil
}

// longest is the size of the longest segment.
func (b *Batch) longest() (n int) {
	for i := range b.cuts {
		data, _ := b.Segment(i)
		n = max(n, len(data))
	}
	return n
}

// recut copies b into segments of at most limit bytes, except for single larger events.
func recut(b *Batch, limit int) (*Batch, error) {
	out := &Batch{buf: make([]byte, 0, len(b.buf)+len(b.buf)/8)}
	// Nobody changes b meanwhile, and out holds copies.
	d := decoder{rest: unsafe.String(unsafe.SliceData(b.buf), len(b.buf))}
	for len(d.rest) > 0 && d.err == nil {
		g := Group{
			Source: d.text(), Project: d.text(), Environment: d.text(), ContentType: d.text(),
			Received: d.time(), Labels: d.labels(nil),
		}
		out.Begin(g)
		for n := d.uint32(); n > 0 && d.err == nil; n-- {
			e := Entry{
				ID: bytesOf(d.text()), Type: bytesOf(d.text()), Subject: bytesOf(d.text()),
				Time: d.time().UnixNano(), Labels: d.labels(nil), Body: bytesOf(d.text()),
			}
			if out.tail()+g.room()+e.room() > limit {
				out.cut()
			}
			out.Add(&e)
		}
	}
	return out, d.err
}

// tail is the size of the last segment.
func (b *Batch) tail() int {
	if len(b.cuts) == 0 {
		return 0
	}
	return len(b.buf) - b.cuts[len(b.cuts)-1].start
}

// cut begins a segment, unless one has just begun.
func (b *Batch) cut() {
	if b.tail() > 0 {
		b.cuts = append(b.cuts, cut{start: len(b.buf)})
		b.open = false
	}
}

// room returns the most bytes that a group takes in a batch, without its events.
func (g *Group) room() int {
	return 4*binary.MaxVarintLen32 + len(g.Source) + len(g.Project) + len(g.Environment) + len(g.ContentType) +
		8 + labelsRoom(g.Labels) + 4
}

// room returns the most bytes that an event takes in a batch.
func (e *Entry) room() int {
	return 4*binary.MaxVarintLen32 + len(e.ID) + len(e.Type) + len(e.Subject) + 8 + labelsRoom(e.Labels) + len(e.Body)
}

func labelsRoom(labels []relay.Label) int {
	n := binary.MaxVarintLen32
	for _, l := range labels {
		n += 2*binary.MaxVarintLen32 + len(l.Name) + len(l.Value)
	}
	return n
}
