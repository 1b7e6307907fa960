package journal

import (
	"errors"
	"fmt"
	"maps"
	"sync"
)

// ErrShare means that the undelivered events of a source fill its share of the disk budget.
// Pushes of other sources are still taken.
var ErrShare = errors.New("the environment's undelivered events take all of their share of the journal")

const (
	// A source's undelivered events may take fairness times the free space. So a
	// flooding source takes at most 8/9 of what is shared, two take 8/17 each, and a source
	// with little always finds room.
	fairness = 8
	// unshared is the part of the budget that no source's records fill: the log's headers, and
	// what it allocates ahead.
	unshared = 8
	// cells is the number of steps in the account.
	cells = 256
)

// budget accounts for the journal's disk budget: how much of it the undelivered
// events of each source take.
//
// It divides a record's stored bytes among its appends by their bytes before compression,
// and adds them up in cells of 1/256 of the budget. A cell is freed as soon as every sink
// has acknowledged its newest record. So memory is bounded by cells times sources, and the
// sum exceeds the truth by a cell at most. An append reserves its bytes beforehand, by the
// compression of the last ones.
//
// It is safe for concurrent use.
type budget struct {
	size int64
	// Above mark bytes delivered records are trimmed, down to goal bytes.
	mark, goal int64

	mu        sync.Mutex // guards the fields below
	alone     bool       // one source has nobody to be fair to
	used      int64      // bytes of the log, whether they are delivered or not; estimated between two looks
	delivered uint64     // the newest record at every sink, as of the last look
	cells     []cell     // undelivered, oldest first
	held      map[string]int64
	beyond    map[string]int64 // by source, of dead letters beyond their budget; a part of held
	letters   int64            // the sum of beyond
	all       int64            // the sum of held
	ratio     float64          // of stored bytes to those before compression
}

// serve says whether there is a single source from now on.
func (b *budget) serve(alone bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.alone = alone
}

// sourceBytes is a source's part of a record, in bytes before compression.
type sourceBytes struct {
	Source string
	Bytes  int
}

func sumOf(shares []sourceBytes) (bytes int) {
	for _, s := range shares {
		bytes += s.Bytes
	}
	return bytes
}

// cell is a run of undelivered records.
type cell struct {
	last  uint64 // its newest record
	bytes int64
	by    map[string]int64 // bytes by source
}

// newCell divides the stored bytes of the records up to last among their sources.
func newCell(last uint64, bytes int64, shares []sourceBytes) cell {
	c := cell{last: last, bytes: bytes, by: map[string]int64{}}
	total := int64(max(1, sumOf(shares)))
	for _, s := range shares {
		c.by[s.Source] += bytes * int64(s.Bytes) / total
	}
	return c
}

func (c *cell) merge(o cell) {
	c.last, c.bytes = max(c.last, o.last), c.bytes+o.bytes
	for source, bytes := range o.by {
		c.by[source] += bytes
	}
}

// newBudget makes the account of a budget of size bytes, of which some are used already. alone says
// that there is a single source, which has nobody to be fair to.
func newBudget(size, used int64, alone bool) *budget {
	// Delivered records leave a quarter of a small budget free, and an eighth of a
	// large one: ingest goes on while they are trimmed.
	spare := max(size/8, min(size/4, 4<<20))
	return &budget{
		size: size, mark: size - spare, goal: size - spare - spare/2, alone: alone,
		used: used, held: map[string]int64{}, ratio: 0.5,
	}
}

// add accounts for a record. It reports whether a trim is due because the budget nears its
// end.
func (b *budget) add(record uint64, stored int, shares []sourceBytes) (press bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ratio += (float64(stored)/float64(max(1, sumOf(shares))) - b.ratio) / 16
	b.used += int64(stored)
	if record <= b.delivered {
		return b.used > b.mark
	}
	c := newCell(record, int64(stored), shares)
	b.holdAll(c.by, 1)
	if n := len(b.cells); n > 0 && b.cells[n-1].bytes < b.size/cells {
		b.cells[n-1].merge(c)
	} else {
		b.cells = append(b.cells, c)
	}
	return b.used > b.mark || b.all-b.letters > b.size/2
}

// inherit accounts for records older than all others.
func (b *budget) inherit(older []cell) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, c := range older {
		b.holdAll(c.by, 1)
	}
	b.cells = append(older, b.cells...)
}

// hold adds bytes to a source's, or subtracts them. mu is held.
func (b *budget) hold(source string, bytes int64) {
	b.all += bytes
	if b.held[source] += bytes; b.held[source] <= 0 {
		delete(b.held, source)
	}
}

// holdAll adds bytes to those of their sources, or with the sign -1 subtracts them. mu is held.
func (b *budget) holdAll(by map[string]int64, sign int64) {
	for source, bytes := range by {
		b.hold(source, sign*bytes)
	}
}

// look corrects the account by the newest record that every sink has had, and by the bytes
// that the log takes.
func (b *budget) look(delivered uint64, used int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used, b.delivered = used, delivered
	n := 0
	for ; n < len(b.cells) && b.cells[n].last <= delivered; n++ {
		b.holdAll(b.cells[n].by, -1)
	}
	b.cells = append(b.cells[:0], b.cells[n:]...)
}

// reserve accounts for an append of so many bytes before compression. The caller passes the
// reserved bytes to giveBack after the append. The error wraps ErrShare if the source would
// hold more than most, where 0 means no bound, or more than fairness allows. The dead letters
// of other sources take nothing of what is free: they count against their own source alone.
func (b *budget) reserve(source string, bytes, most int64) (reserved int64, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	reserved = int64(b.ratio * float64(bytes))
	own, free := b.held[source]+reserved, max(0, b.size-b.size/unshared-(b.all-b.letters)-b.beyond[source]-reserved)
	switch {
	case most > 0 && own > most:
		return 0, fmt.Errorf("%w: about %d bytes of the %d that it is allowed", ErrShare, own, most)
	case b.beyond[source] > 0 && own > b.size: // the log's own limit knows nothing of letters
		return 0, fmt.Errorf("%w: about %d bytes of %d, dead letters beyond their budget included", ErrShare, own, b.size)
	case !b.alone && own > fairness*free:
		return 0, fmt.Errorf("%w: about %d bytes, while %d of %d are free", ErrShare, own, free, b.size)
	}
	if reserved > 0 {
		b.hold(source, reserved)
	}
	return reserved, nil
}

// holdBeyond counts dead letters beyond their budget as undelivered bytes of their sources.
// It replaces the account of the last call.
func (b *budget) holdBeyond(letters map[string]int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.holdAll(b.beyond, -1)
	b.holdAll(letters, 1)
	b.beyond, b.letters = maps.Clone(letters), 0
	for _, bytes := range letters {
		b.letters += bytes
	}
}

// giveBack ends a reservation.
func (b *budget) giveBack(source string, reserved int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.hold(source, -reserved)
}

// undelivered is about how many stored bytes some sink has not had yet.
func (b *budget) undelivered() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return min(b.all-b.letters, b.used)
}

// bySource is about how many undelivered bytes each source holds.
func (b *budget) bySource() map[string]int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return maps.Clone(b.held)
}

// surplus is how many of a log's records have to go to make room for need bytes. It is 0 below
// the mark.
func (b *budget) surplus(used int64, records uint64, need int64) uint64 {
	if used <= b.mark && used+need <= b.size {
		return 0
	}
	excess := used - min(b.goal, b.size-need)
	mean := max(1, used/int64(max(1, records)))
	return uint64(max(0, (excess+mean-1)/mean))
}

// tight reports whether so many bytes more would bring the log beyond the mark where delivered
// records begin to give way.
func (b *budget) tight(need int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.used+need > b.mark
}
