package record

import (
	"encoding/binary"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"unsafe"

	"github.com/auditrelay/auditrelay/relay"
)

const (
	// PieceBytes is the usual size of a piece of a record. A record of one mebibyte may decode
	// to thousands of mebibytes.
	PieceBytes = 4 << 20
	// MostLabels and mostLabelBytes bound the labels of a stream, and also an
	// event's own. Ingest takes no more; earlier versions took any number.
	MostLabels     = 1024
	mostLabelBytes = 256 << 10
)

// LabelsCut is the name of an event's last label if some were left out. Its value is their
// number.
const LabelsCut = "auditrelay_labels_left_out"

// Memory of an event and of a label, in bytes, without their texts.
const (
	eventRoom = int(unsafe.Sizeof(relay.Event{}))
	labelRoom = int(unsafe.Sizeof(relay.Label{}))
)

// Reader returns the events of a record in pieces of a bounded size. The size counts everything
// that a sink may write: memory holds a stream's labels once, but they go to the destination
// with every event.
//
// The events point into memory that nobody changes or uses again.
type Reader struct {
	decoder
	events int // by the header
	given  int

	common relay.Event // of the open group
	room   int         // bytes the group adds to each of its events
	left   uint32      // unread events of the open group

	// The labels of the group's last event, if all were taken, and their bytes in the batch.
	labelled []relay.Label
	again    string
}

// Open decompresses a record. Its error wraps ErrCorrupt or ErrVersion.
func Open(rec []byte) (*Reader, error) {
	raw, events, err := unpack(rec)
	if err != nil {
		return nil, err
	}
	return readerOf(raw, events), nil
}

// readerOf reads a batch of so many events. Nobody may change raw from now on.
func readerOf(raw []byte, events int) *Reader {
	return &Reader{decoder: decoder{rest: unsafe.String(unsafe.SliceData(raw), len(raw)), bounded: true}, events: events}
}

// Pieces gives the events of a record, a piece at a time, and last the error that ends them.
func Pieces(rec []byte) iter.Seq2[[]relay.Event, error] {
	return func(yield func([]relay.Event, error) bool) {
		r, err := Open(rec)
		for err == nil && !r.Done() {
			var events []relay.Event
			if events, _, err = r.Next(nil, PieceBytes); err == nil && !yield(events, nil) {
				return
			}
		}
		if err != nil {
			yield(nil, err)
		}
	}
}

// Events is the number of events in the record, by its header.
func (r *Reader) Events() int { return r.events }

// Done reports whether all events were given.
func (r *Reader) Done() bool { return r.given == r.events }

// Next appends events to dst until they have most bytes or the record ends: at
// least one, if there is one. It returns their size. An error wraps ErrCorrupt and
// leaves dst as it was. The first piece checks the whole record, so no later piece
// can fail.
func (r *Reader) Next(dst []relay.Event, most int) (_ []relay.Event, size int, err error) {
	start, first := len(dst), r.given == 0
	if n := min(r.events-r.given, most/eventRoom+1); cap(dst)-start < n {
		dst = append(make([]relay.Event, 0, start+n), dst...)
	}
	for size < most && r.seek() {
		dst = slices.Grow(dst, 1)[:len(dst)+1]
		size += r.event(&dst[len(dst)-1])
	}
	if first && r.err == nil {
		ahead, e := *r, relay.Event{}
		ahead.dry = true
		for ahead.seek() {
			ahead.event(&e)
		}
		r.cut, r.err = ahead.cut, ahead.whole()
	}
	if r.err != nil {
		return dst[:start], 0, r.err
	}
	return dst, size, nil
}

// seek advances to the next event, and reports whether there is one.
func (r *Reader) seek() bool {
	for r.left == 0 && len(r.rest) > 0 && r.err == nil {
		before := len(r.rest)
		r.common = relay.Event{
			Source: r.text(), Project: r.text(), Environment: r.text(), ContentType: r.text(),
			Received: r.time(),
		}
		r.common.Labels, r.again = r.labels(nil), ""
		r.left = r.uint32()
		r.room = eventRoom + before - len(r.rest) + len(r.common.Labels)*labelRoom
	}
	return r.left > 0 && r.err == nil
}

// event reads the event found by seek into e, and returns its size.
func (r *Reader) event(e *relay.Event) int {
	before := len(r.rest)
	*e = r.common
	e.ID, e.Type, e.Subject, e.Time = r.text(), r.text(), r.text(), r.time()
	e.Labels = r.eventLabels()
	e.Body = bytesOf(r.text())
	r.left--
	r.given++
	return r.room + before - len(r.rest) + (len(e.Labels)-len(r.common.Labels))*labelRoom
}

// eventLabels returns the group's labels followed by those of the next event. Events in a row
// often have the same ones, as in Datadog's form, and then share them.
func (r *Reader) eventLabels() []relay.Label {
	if r.again != "" && strings.HasPrefix(r.rest, r.again) {
		r.rest = r.rest[len(r.again):]
		return r.labelled
	}
	rest, cut := r.rest, r.cut
	labels := r.labels(r.common.Labels)
	r.labelled, r.again = labels, ""
	if r.err == nil && r.cut == cut {
		r.again = rest[:len(rest)-len(r.rest)]
	}
	return labels
}

// whole compares the record's number of events with that in its header.
func (r *Reader) whole() error {
	if r.err == nil && r.given != r.events {
		r.err = fmt.Errorf("%w: holds %d events, its header says %d", ErrCorrupt, r.given, r.events)
	}
	return r.err
}

// Checksum is a record's own checksum, and 0 for bytes too short for a record.
func Checksum(rec []byte) uint64 {
	if len(rec) < headerSize {
		return 0
	}
	return binary.LittleEndian.Uint64(rec[16:])
}

// Count is the number of events in a record, by its header; 0 without one.
func Count(rec []byte) uint64 {
	if len(rec) < headerSize || string(rec[:4]) != magic {
		return 0
	}
	return uint64(binary.LittleEndian.Uint32(rec[8:]))
}

// Check reads a whole record, and counts its events.
func Check(rec []byte) (events int, err error) {
	r, err := Open(rec)
	if err == nil {
		_, _, err = r.Next(nil, 1)
	}
	if err != nil {
		return 0, err
	}
	return r.events, nil
}

// labels returns common followed by the next labels; without any it returns common
// itself.
func (d *decoder) labels(common []relay.Label) []relay.Label {
	n := d.uvarint()
	if n == 0 {
		return common
	}
	if n > uint64(len(d.rest)) { // each takes at least two bytes
		d.fail("label count")
		return nil
	}
	most := n
	if d.bounded {
		most = min(n, MostLabels)
	}
	var out []relay.Label
	if !d.dry {
		out = append(make([]relay.Label, 0, len(common)+int(most)+int(min(1, n-most))), common...)
	}
	kept, cut, size := uint64(0), uint64(0), 0
	for ; n > 0 && d.err == nil; n-- {
		l := relay.Label{Name: d.text(), Value: d.text()}
		size += len(l.Name) + len(l.Value)
		if kept == most || d.bounded && size > mostLabelBytes {
			cut++
			continue
		}
		kept++
		if !d.dry {
			out = append(out, l)
		}
	}
	if cut > 0 {
		d.cut++
	}
	if cut > 0 && !d.dry {
		out = append(out, relay.Label{Name: LabelsCut, Value: strconv.FormatUint(cut, 10)})
	}
	return out
}
