package journal

import (
	"errors"
	"fmt"
	"maps"
	"sync"

	"github.com/nats-io/nats.go/jetstream"
)

// ErrShare says that the events of one environment that no sink has had yet take
// as much of the disk budget as they may. Others' are still taken.
var ErrShare = errors.New("the environment's undelivered events take all of their share of the journal")

const (
	// fairness is how many times what is free one environment's undelivered events
	// may take. So a single one that floods takes 8/9 of the budget at the most,
	// two take 8/17 each, and whoever has little there always finds room.
	fairness = 8
	// cells is how many steps the budget is accounted in.
	cells = 256
)

// room accounts for the disk budget: what the undelivered events of each
// environment take of it.
//
// A record's bytes, as stored, are shared out to the appends in it by their
// bytes before compression, and kept by cells of 1/256 of the budget: one is
// given back as soon as every sink has acknowledged its newest record. So the memory is
// bounded by cells times environments, and what is accounted is at most a cell
// more than the truth. What an append will take is reserved before it, by how
// well the last ones compressed. After a restart, records are sampled to learn
// whose the undelivered ones are; see [Journal.inherit].
type room struct {
	budget int64
	// mark and goal are the bytes above which delivered records are trimmed, and
	// down to which.
	mark, goal int64
	alone      bool // one environment pushes, so that there is nobody to be fair to

	mu        sync.Mutex // guards what follows
	used      int64      // of the stream, delivered or not; estimated between two looks
	delivered uint64     // by every sink, as of the last look
	cells     []cell     // undelivered, oldest first
	held      map[string]int64
	all       int64   // the sum of held
	ratio     float64 // of stored bytes to those before compression
}

// cell is some of the newest records that were committed together.
type cell struct {
	last  uint64 // its newest record
	bytes int64
	by    map[string]int64 // source to bytes
}

// newCell shares out the bytes of records that end with last.
func newCell(last uint64, bytes int64, shares []share) cell {
	c := cell{last: last, bytes: bytes, by: map[string]int64{}}
	total := int64(max(1, sum(shares)))
	for _, s := range shares {
		c.by[s.source] += bytes * int64(s.bytes) / total
	}
	return c
}

func (c *cell) merge(o cell) {
	c.last, c.bytes = max(c.last, o.last), c.bytes+o.bytes
	for source, bytes := range o.by {
		c.by[source] += bytes
	}
}

func newRoom(budget, used int64) *room {
	// A quarter of a small budget and an eighth of a large one is kept free of
	// what every sink has: trimming takes its time, and ingest goes on meanwhile.
	spare := max(budget/8, min(budget/4, 4<<20))
	return &room{
		budget: budget, mark: budget - spare, goal: budget - spare - spare/2,
		used: used, held: map[string]int64{}, ratio: 0.5,
	}
}

// share is what a source has in a record, in bytes.
type share struct {
	source string
	bytes  int
}

func sum(shares []share) (bytes int) {
	for _, s := range shares {
		bytes += s.bytes
	}
	return bytes
}

// add accounts for a record. It reports whether the budget nears its end, so
// that somebody should look what can go.
func (r *room) add(record uint64, stored int, shares []share) (press bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ratio += (float64(stored)/float64(max(1, sum(shares))) - r.ratio) / 16
	r.used += int64(stored)
	if record <= r.delivered {
		return r.used > r.mark
	}
	c := newCell(record, int64(stored), shares)
	r.count(c)
	if n := len(r.cells); n > 0 && r.cells[n-1].bytes < r.budget/cells {
		r.cells[n-1].merge(c)
	} else {
		r.cells = append(r.cells, c)
	}
	return r.used > r.mark || r.all > r.budget/2
}

// inherit accounts for records that were committed before all others.
func (r *room) inherit(older []cell) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range older {
		r.count(c)
	}
	r.cells = append(older, r.cells...)
}

// count adds what a cell holds. mu is held.
func (r *room) count(c cell) {
	for source, bytes := range c.by {
		r.hold(source, bytes)
	}
}

// hold adds to what a source holds, or takes from it. mu is held.
func (r *room) hold(source string, bytes int64) {
	r.all += bytes
	if r.held[source] += bytes; r.held[source] <= 0 {
		delete(r.held, source)
	}
}

// look takes in what the server said of the stream and of the sinks' positions.
func (r *room) look(delivered uint64, info *jetstream.StreamInfo) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.used, r.delivered = int64(info.State.Bytes), delivered
	n := 0
	for ; n < len(r.cells) && r.cells[n].last <= delivered; n++ {
		for source, bytes := range r.cells[n].by {
			r.hold(source, -bytes)
		}
	}
	r.cells = append(r.cells[:0], r.cells[n:]...)
}

// reserve accounts for an append of so many bytes, before compression, or says
// why the source may not make it. most bounds what the source may hold; 0 is no
// bound but fairness. What it returns is to be given back when the append is done.
func (r *room) reserve(source string, bytes, most int64) (reserved int64, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	reserved = int64(r.ratio * float64(bytes))
	own, free := r.held[source]+reserved, max(0, r.budget-r.all-reserved)
	switch {
	case most > 0 && own > most:
		return 0, fmt.Errorf("%w: about %d bytes of the %d that it is allowed", ErrShare, own, most)
	case !r.alone && own > fairness*free:
		return 0, fmt.Errorf("%w: about %d bytes, while %d of %d are free", ErrShare, own, free, r.budget)
	}
	r.hold(source, reserved)
	return reserved, nil
}

// giveBack takes back a reservation.
func (r *room) giveBack(source string, reserved int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.hold(source, -reserved)
}

// waiting is how many bytes, as stored, some sink has not had yet, about.
func (r *room) waiting() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return min(r.all, r.used)
}

// undelivered gives what each source holds, in bytes as stored, about.
func (r *room) undelivered() map[string]int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.held)
}

// surplus is how many records before free.end must go, so that need bytes more
// fit; none below the mark, and none without a sink: nobody has had them.
func (r *room) surplus(free extent, need int64) uint64 {
	used := int64(free.stream.Bytes)
	if !free.sinks || used <= r.mark && used+need <= r.budget {
		return 0
	}
	excess := used - min(r.goal, r.budget-need)
	mean := max(1, used/int64(max(1, free.stream.Msgs)))
	return min(free.end-free.first, uint64(max(0, (excess+mean-1)/mean)))
}
