// Package history notes the record at each position of a stream. So the relay notices a
// stream gone back: its server lost the end, and gives the same positions to other
// records as if nothing had happened.
//
// It holds the checksum of each of the newest 1,024 records, of every 1,024th older
// one, and of every 1,048,576th: 72 KiB. The history of an external stream is also in a
// file on the relay's own disk, written without a sync: after a kill it is exact, after
// a power loss it may be older.
package history

import (
	"os"
	"sync"
)

// Place is a position and the checksum of the record there.
type Place struct{ Seq, Sum uint64 }

// History is safe for concurrent use. Its zero value is empty and has no file.
type History struct {
	file   *os.File // nil where it is not kept
	path   string
	failed func(error) // told the outcome of each write

	mu     sync.Mutex // guards the fields below
	rings  [rings][ringSize]Place
	newest uint64 // the greatest known position
	// base is the stream's end when the journal was opened, or when it last went back:
	// no further record may get a position up to it.
	base uint64
	// doubt is the lowest position with another record than known, until somebody
	// compares the history with the stream; 0 for none.
	doubt uint64
	// stayed is the new end of the stream, each time it went back.
	stayed []uint64
}

// Given notes the position of a further record. It returns false if the position was or
// may have been another record's: the history must then be compared with the stream.
func (h *History) Given(at Place) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	sum, known := h.at(at.Seq)
	if h.doubt == 0 && !known && at.Seq > h.base && at.Seq+ringSize > h.newest {
		h.put(at)
		return true
	}
	return h.fits(at, known && sum == at.Sum)
}

// Read notes a record given out by the server. It returns false if the position was
// another record's: the history must then be compared with the stream.
func (h *History) Read(at Place) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	sum, known := h.at(at.Seq)
	if h.doubt == 0 && !known {
		h.put(at)
		return true
	}
	return h.fits(at, known && sum == at.Sum)
}

// fits notes a doubt unless the record fits. mu is held.
func (h *History) fits(at Place, fit bool) bool {
	if !fit && (h.doubt == 0 || at.Seq < h.doubt) {
		h.doubt = at.Seq
	}
	return fit && h.doubt == 0
}

// Reach is the newest known position. In doubt, some record did not fit.
func (h *History) Reach() (newest uint64, doubt bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.newest, h.doubt != 0
}

// Suspect is the best place to look for a stream gone back: the newest one, or in doubt
// one not newer than the doubt.
func (h *History) Suspect() (Place, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if sum, known := h.at(h.doubt); known && h.doubt > 0 {
		return Place{h.doubt, sum}, true
	}
	to := h.newest
	if h.doubt > 0 && h.doubt <= h.base {
		to = h.base
	}
	if all := h.places(to); len(all) > 0 {
		return all[len(all)-1], true
	}
	return Place{}, false
}

// Places returns the known places up to a position, oldest first.
func (h *History) Places(to uint64) []Place {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.places(to)
}

// Turn notes a stream gone back to a position: from now on acknowledgements of records
// read before are void.
func (h *History) Turn(stays uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.stayed = append(h.stayed, stays)
}

// Turns counts how often the stream went back. stays is the lowest of its new ends, the
// first n left out.
func (h *History) Turns(n int) (turns int, stays uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	stays = ^uint64(0)
	for _, s := range h.stayed[n:] {
		stays = min(stays, s)
	}
	return len(h.stayed), stays
}

// Begin notes where the stream ends, before anything is appended.
func (h *History) Begin(end uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.base = end
}

// Settle ends a doubt: the stream did not go back.
func (h *History) Settle() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.doubt = 0
}

// Reset forgets the places behind stays, after the stream went back there; it ends at
// base now. A crash leaves the old file whole, so the next start finds the same.
func (h *History) Reset(stays, base uint64) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	old := h.rings
	h.rings = [rings][ringSize]Place{}
	h.newest, h.base, h.doubt = 0, base, 0
	for ring := range old {
		for slot, at := range old[ring] {
			if at.Seq <= stays {
				h.rings[ring][slot] = at
				h.newest = max(h.newest, at.Seq)
			}
		}
	}
	return h.replace()
}
