package disk

import (
	"slices"
	"sync"

	"github.com/auditrelay/auditrelay/internal/store"
)

// index knows where some of a segment's records stand, so that a reader that begins in the
// middle need not walk there from the segment's start. It gathers what is appended and what
// readers pass: one place in indexStep bytes, which are 1.3 MB of memory for 10 GB of logs.
type index struct {
	mu     sync.Mutex
	places []place // ascending; guarded by mu
}

type place struct {
	pos    store.Pos
	offset int64
}

const indexStep = 128 << 10

// add adds a place, unless another one is near.
func (x *index) add(pos store.Pos, offset int64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	i := x.after(pos)
	if i > 0 && offset-x.places[i-1].offset < indexStep || i < len(x.places) && x.places[i].offset-offset < indexStep {
		return
	}
	x.places = slices.Insert(x.places, i, place{pos, offset})
}

// after returns how many places are at a position or before it. mu is held.
func (x *index) after(pos store.Pos) int {
	i, found := slices.BinarySearchFunc(x.places, pos, func(p place, pos store.Pos) int { return int(int64(p.pos) - int64(pos)) })
	if found {
		i++
	}
	return i
}

// around returns the offsets between which the record of a position begins: from and to
// themselves, where nothing nearer is known.
func (x *index) around(pos store.Pos, from, to int64) (int64, int64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	i := x.after(pos)
	if i > 0 {
		from = x.places[i-1].offset
	}
	if i < len(x.places) {
		to = min(to, x.places[i].offset)
	}
	return from, to
}

// seek finds an offset shortly before the record of a position. Where the index does not
// know one, it looks into the middle of what remains, again and again: a header stands only
// where it was written, and the positions ascend.
func (x *index) seek(w *window, at *span, pos store.Pos) int64 {
	low, high := x.around(pos, dataStart, at.end)
	for high-low > indexStep {
		middle := low + (high-low)/2
		w.chunk = 0
		offset, h, ok := w.find(middle, at.end, at.seed, 1, at.last)
		if !ok || offset >= high {
			high = middle
			continue
		}
		x.add(h.pos, offset)
		if h.pos <= pos {
			low = offset
		} else {
			high = middle
		}
	}
	w.chunk = 0
	return low
}
