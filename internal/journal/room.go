package journal

import (
	"errors"
	"fmt"
	"maps"
	"sync"

	"github.com/nats-io/nats.go/jetstream"
)

// ErrShare says that an environment's undelivered events fill its share of the disk
// budget. Pushes of other environments are still taken.
var ErrShare = errors.New("the environment's undelivered events take all of their share of the journal")

const (
	// An environment's undelivered events may take fairness times the free space. So
	// one that floods takes at most 8/9 of the budget, two take 8/17 each, and an
	// environment that holds little always finds room.
	fairness = 8
	// cells is the number of steps in which the budget is accounted.
	cells = 256
)

// room accounts for the disk budget: how much of it the undelivered events of each
// environment take.
//
// It divides a record's stored bytes among its appends by their bytes before
// compression, and adds them up in cells of 1/256 of the budget. A cell is freed as
// soon as every sink has acknowledged its newest record. So memory is bounded by
// cells times environments, and the sum exceeds the truth by a cell at the most.
// An append reserves its room beforehand, by the compression of the last ones.
// After a restart, samples tell whose the undelivered records are; see
// [Journal.inherit].
type room struct {
	budget int64
	// Above mark bytes delivered records are trimmed, down to goal bytes.
	mark, goal int64
	alone      bool // only one environment pushes, so fairness does not apply

	mu        sync.Mutex // guards what follows
	used      int64      // bytes of the stream, delivered or not; estimated between two looks
	delivered uint64     // the newest record that every sink had at the last look
	cells     []cell     // undelivered, oldest first
	held      map[string]int64
	all       int64   // the sum of held
	ratio     float64 // of stored bytes to those before compression
}

// cell is a run of undelivered records.
type cell struct {
	last  uint64 // its newest record
	bytes int64
	by    map[string]int64 // bytes by source
}

// newCell divides the bytes of the records up to last among their sources.
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
	// Delivered records leave a quarter of a small budget free, and an eighth of a
	// large one: ingest goes on while they are trimmed.
	spare := max(budget/8, min(budget/4, 4<<20))
	return &room{
		budget: budget, mark: budget - spare, goal: budget - spare - spare/2,
		used: used, held: map[string]int64{}, ratio: 0.5,
	}
}

// share is how many bytes of a record are a source's.
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

// add accounts for a record. It reports whether the budget nears its end, so that a
// sweep is due.
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

// inherit accounts for records that are older than all others.
func (r *room) inherit(older []cell) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range older {
		r.count(c)
	}
	r.cells = append(older, r.cells...)
}

// count adds a cell's bytes. mu is held.
func (r *room) count(c cell) {
	for source, bytes := range c.by {
		r.hold(source, bytes)
	}
}

// hold adds bytes to a source's, or subtracts them. mu is held.
func (r *room) hold(source string, bytes int64) {
	r.all += bytes
	if r.held[source] += bytes; r.held[source] <= 0 {
		delete(r.held, source)
	}
}

// look updates the account by the stream's state and the sinks' positions.
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

// reserve accounts for an append of so many bytes before compression, or says why
// the source may not make it. most bounds what the source may hold, beside fairness;
// 0 is no bound. The caller gives back the reserved bytes after the append.
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

// giveBack ends a reservation.
func (r *room) giveBack(source string, reserved int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.hold(source, -reserved)
}

// waiting is about how many stored bytes some sink has not had yet.
func (r *room) waiting() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return min(r.all, r.used)
}

// undelivered gives the approximate stored bytes that each source holds.
func (r *room) undelivered() map[string]int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.held)
}

// surplus is how many records before free.end must go to make room for need bytes.
// It is 0 below the mark, and without a sink, as nobody has had them.
func (r *room) surplus(free extent, need int64) uint64 {
	used := int64(free.stream.Bytes)
	if !free.sinks || used <= r.mark && used+need <= r.budget {
		return 0
	}
	excess := used - min(r.goal, r.budget-need)
	mean := max(1, used/int64(max(1, free.stream.Msgs)))
	return min(free.end-free.first, uint64(max(0, (excess+mean-1)/mean)))
}
