package record

import (
	"encoding/binary"
	"time"

	"github.com/auditrelay/auditrelay/relay"
)

// segmentTarget is the size at which a batch starts a new segment. A commit takes whole
// segments, so it can divide a push of any size, and exceeds its bound by at most one segment.
const segmentTarget = 256 << 10

// A Batch collects the events of one push in the form of a record: each body is copied
// once between the request and the disk. It may be reused after Reset. The zero value is
// ready to use.
//
// This is its layout. Lengths and counts are uvarints as in encoding/binary, except where
// noted; a string follows its length.
//
//	batch = { group }
//	group = source project environment contentType received(int64 LE, Unix ns)
//	        labels eventCount(uint32 LE) { event }
//	event = id type subject time(int64 LE, Unix ns) labels body
//	labels = count { name value }
//
// The batch is cut into segments. Each starts with a group, so a run of segments is a
// batch of its own.
type Batch struct {
	buf     []byte
	cuts    []cut  // where the segments start, ascending
	group   Group  // the open one
	room    int    // the most bytes of its head
	open    bool   // whether a group is open
	count   int    // offset of the open group's event count
	inGroup uint32 // events of the open group
	events  int
	record  uint64 // see the method Record
}

// cut is where a segment starts in a batch, and how many events it contains.
type cut struct{ start, events int }

// Group holds the attributes that a run of events has in common.
type Group struct {
	Source, Project, Environment, ContentType string

	Received time.Time
	Labels   []relay.Label // not changed until the next Begin
}

// Entry is one event of a group. The slices are copied.
type Entry struct {
	ID, Type, Subject []byte

	Time   int64 // Unix nanoseconds
	Labels []relay.Label
	Body   []byte
}

// Begin opens a run of events; the entries added next belong to it. A group
// without entries takes no space.
func (b *Batch) Begin(g Group) {
	b.group, b.open, b.room = g, false, g.room()
}

// Add appends an event to the group opened last.
func (b *Batch) Add(e *Entry) {
	if len(b.cuts) == 0 || len(b.buf)-b.cuts[len(b.cuts)-1].start+len(e.Body) > segmentTarget {
		b.cuts = append(b.cuts, cut{start: len(b.buf)})
		b.open = false
	}
	b.cuts[len(b.cuts)-1].events++
	if !b.open {
		b.writeGroup()
	}
	b.buf = appendString(b.buf, e.ID)
	b.buf = appendString(b.buf, e.Type)
	b.buf = appendString(b.buf, e.Subject)
	b.buf = binary.LittleEndian.AppendUint64(b.buf, uint64(e.Time))
	b.buf = appendLabels(b.buf, e.Labels)
	b.buf = appendString(b.buf, e.Body)
	b.inGroup++
	binary.LittleEndian.PutUint32(b.buf[b.count:], b.inGroup)
	b.events++
}

func (b *Batch) writeGroup() {
	b.buf = appendString(b.buf, b.group.Source)
	b.buf = appendString(b.buf, b.group.Project)
	b.buf = appendString(b.buf, b.group.Environment)
	b.buf = appendString(b.buf, b.group.ContentType)
	b.buf = binary.LittleEndian.AppendUint64(b.buf, uint64(b.group.Received.UnixNano()))
	b.buf = appendLabels(b.buf, b.group.Labels)
	b.count = len(b.buf)
	b.buf = append(b.buf, 0, 0, 0, 0)
	b.inGroup, b.open = 0, true
}

// Len returns the number of events in the batch.
func (b *Batch) Len() int { return b.events }

// Size returns the size of the batch before compression, in bytes.
func (b *Batch) Size() int { return len(b.buf) }

// Cap returns the size of the batch's memory, in bytes.
func (b *Batch) Cap() int { return cap(b.buf) }

// Room returns the most bytes that Add takes for an event.
func (b *Batch) Room(e *Entry) int { return b.room + e.room() }

// Grow gives the batch memory for n bytes in all.
func (b *Batch) Grow(n int) {
	if n > cap(b.buf) {
		b.buf = append(make([]byte, 0, n), b.buf...)
	}
}

// Reset empties the batch and keeps its memory.
func (b *Batch) Reset() {
	*b = Batch{buf: b.buf[:0], cuts: b.cuts[:0]}
}

// Record returns the journal's position of the record with the batch's last events, or 0 until
// they are committed.
func (b *Batch) Record() uint64 { return b.record }

// Committed sets the position of the record with the batch's last events.
func (b *Batch) Committed(record uint64) { b.record = record }

// Source returns the source of the group opened last.
func (b *Batch) Source() string { return b.group.Source }

// Bytes returns the events in the form of a record, before compression.
func (b *Batch) Bytes() []byte { return b.buf }

// Segments counts the batch's segments.
func (b *Batch) Segments() int { return len(b.cuts) }

// Segment returns the i-th segment, and how many events it holds.
func (b *Batch) Segment(i int) (data []byte, events int) {
	end := len(b.buf)
	if i+1 < len(b.cuts) {
		end = b.cuts[i+1].start
	}
	return b.buf[b.cuts[i].start:end], b.cuts[i].events
}

func appendString[S ~string | ~[]byte](dst []byte, s S) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(s)))
	return append(dst, s...)
}

func appendLabels(dst []byte, labels []relay.Label) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(labels)))
	for _, l := range labels {
		dst = appendString(dst, l.Name)
		dst = appendString(dst, l.Value)
	}
	return dst
}

// AddEvent appends an event with all its attributes, as a group of its own.
func (b *Batch) AddEvent(e *relay.Event) {
	b.Begin(Group{
		Source: e.Source, Project: e.Project, Environment: e.Environment,
		ContentType: e.ContentType, Received: e.Received, Labels: e.Labels,
	})
	b.Add(&Entry{
		ID: []byte(e.ID), Type: []byte(e.Type), Subject: []byte(e.Subject),
		Time: e.Time.UnixNano(), Body: e.Body,
	})
}
