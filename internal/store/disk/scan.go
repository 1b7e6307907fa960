package disk

import (
	"bytes"
	"errors"
	"io"

	"github.com/auditrelay/auditrelay/internal/store"
)

// window reads a segment in large pieces. What the disk does not give reads as zeros, which
// are no record, so that a bad sector costs only what stood in it.
type window struct {
	f   file
	buf []byte
	at  int64 // where buf stands in the file
	// chunk is how much to read at once: little at first, and more as the reader goes on.
	chunk int
	// limit is where to stop reading: what stands from there on may still change. 0 means
	// the end of the file.
	limit int64
}

const (
	firstChunk = 16 << 10
	windowSize = 256 << 10
)

// bytes returns the n bytes at an offset, or fewer at the end of the file. They may be used
// until the next call.
func (w *window) bytes(offset int64, n int) []byte {
	if from := offset - w.at; from >= 0 && from+int64(n) <= int64(len(w.buf)) {
		return w.buf[from : from+int64(n)]
	}
	w.chunk = max(w.chunk, firstChunk)
	size := max(n, w.chunk)
	w.chunk = min(2*w.chunk, windowSize)
	if w.limit > 0 {
		size = int(max(0, min(int64(size), w.limit-offset)))
	}
	if cap(w.buf) < size {
		w.buf = make([]byte, size)
	}
	w.buf, w.at = w.buf[:size], offset
	read, err := w.f.ReadAt(w.buf, offset)
	if err != nil && !errors.Is(err, io.EOF) {
		read = w.pages(offset)
	}
	w.buf = w.buf[:read]
	return w.buf[:min(n, read)]
}

// pages fills the buffer page by page, with zeros for those that cannot be read.
func (w *window) pages(offset int64) (read int) {
	size, err := w.f.Size()
	if err != nil {
		return 0
	}
	read = int(min(int64(len(w.buf)), max(0, size-offset)))
	clear(w.buf[:read])
	for from := 0; from < read; {
		to := min(read, from+pageSize-int((offset+int64(from))%pageSize))
		if n, err := w.f.ReadAt(w.buf[from:to], offset+int64(from)); err != nil && !errors.Is(err, io.EOF) {
			clear(w.buf[from+n : to])
		}
		from = to
	}
	return read
}

// forget makes the next call read from the file.
func (w *window) forget() { w.buf = w.buf[:0] }

// head decodes the header at an offset.
func (w *window) head(offset int64, seed uint64) (head, bool) {
	return parseHead(w.bytes(offset, headSize), seed, offset)
}

// record decodes the whole record at an offset, whose header is h, into r.
func (w *window) record(offset int64, h *head, seed uint64, r *store.Record) bool {
	b := w.bytes(offset, int(h.size()))
	return int64(len(b)) == h.size() && parseBody(b, h, seed, r)
}

// find looks for the next header from an offset on, up to the offset end, with a position
// in a range.
func (w *window) find(offset, end int64, seed uint64, from, to store.Pos) (at int64, h head, found bool) {
	for offset < end {
		b := w.bytes(offset, int(min(int64(max(w.chunk, firstChunk)), end-offset)))
		if len(b) < headSize {
			return 0, head{}, false
		}
		i := bytes.Index(b, marker[:])
		if i < 0 {
			offset = w.f.Data(offset + int64(len(b)-len(marker)+1))
			continue
		}
		offset += int64(i)
		if h, ok := w.head(offset, seed); ok && h.pos >= from && h.pos <= to && offset+h.size() <= end {
			return offset, h, true
		}
		offset++
	}
	return 0, head{}, false
}

// seekStep is how far before a record a search for it may end.
const seekStep = 64 << 10

// seek finds an offset shortly before the record of a position. It looks into the middle of what
// remains, again and again: a header stands only where it was written, and the positions ascend.
func (w *window) seek(at *span, pos store.Pos) int64 {
	low, high := int64(dataStart), at.end
	for pos > at.base && high-low > seekStep { // whoever reads on from segment to segment looks nowhere
		w.chunk = 0
		middle := low + (high-low)/2
		if offset, h, ok := w.find(middle, at.end, at.seed, 1, at.last); ok && offset < high && h.pos <= pos {
			low = offset
		} else {
			high = middle
		}
	}
	w.chunk = 0
	return low
}

// filled returns where the last byte that is not zero ends, or offset where there is none.
func (w *window) filled(offset, end int64) int64 {
	last := offset
	for offset < end {
		b := w.bytes(offset, int(min(windowSize-offset%windowSize, end-offset)))
		if len(b) == 0 {
			break
		}
		next := offset + int64(len(b))
		if n := len(bytes.TrimRight(b, "\x00")); n > 0 {
			last = offset + int64(n)
		} else {
			w.f.Forget(next) // the kernel takes what it has read ahead for data, whole pages of it
		}
		offset = w.f.Data(next) // what was only reserved is not read
	}
	return last
}
