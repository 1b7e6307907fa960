package timeline

import "math"

// A question about few entries of a long trail passes over most of them, a block of rows at a time.
// Of each block the table knows the span of its times, which names its rows have, and the runs of
// bytes of their texts, as one bit for each of their hashes. They say "no" for certain and "yes"
// perhaps, so the rows of the blocks that are left decide.
const (
	blockRows = 256
	// nameBits is for each column of a block, which is less than two bytes in memory for each row.
	nameBits = 512
)

// block is what is known of a block of rows. The keeper still adds to one that is not full, so that
// nobody else reads it.
type block struct {
	first, last int64 // of the times of its rows
	names       [len(columns)]nameSet
	grams       grams
}

// nameSet has a bit for each name, which others may share.
type nameSet [nameBits / 64]uint64

func (s *nameSet) add(id uint16) { s[id%nameBits/64] |= 1 << (id % 64) }

func (s *nameSet) meets(other *nameSet) bool {
	for i := range s {
		if s[i]&other[i] != 0 {
			return true
		}
	}
	return false
}

// columns are the properties of a row that a filter may restrict to some of the names.
var columns = [...]func(*row) uint16{
	ofKind:        func(r *row) uint16 { return r.Kind },
	ofProject:     func(r *row) uint16 { return r.Project },
	ofEnvironment: func(r *row) uint16 { return r.Environment },
	ofSubject:     func(r *row) uint16 { return r.Subject },
	ofCause:       func(r *row) uint16 { return r.Cause },
	ofActor:       func(r *row) uint16 { return r.Actor },
	ofLevels:      func(r *row) uint16 { return uint16(r.Levels) },
}

const (
	ofKind = iota
	ofProject
	ofEnvironment
	ofSubject
	ofCause
	ofActor
	ofLevels
)

func newBlock() *block { return &block{first: math.MaxInt64, last: math.MinInt64} }

// add takes in a row with its folded text. A missing one has nothing to be found by.
func (b *block) add(r *row, text []byte) {
	if r.Flags&isMissing != 0 {
		return
	}
	b.first, b.last = min(b.first, r.Time), max(b.last, r.Time)
	for i, of := range columns {
		b.names[i].add(of(r))
	}
	b.grams.add(text)
}

// mayBeIn reports whether a block may have a row that fits.
func (m *matcher) mayBeIn(number int64) bool {
	if m.any || (number+1)*blockRows > m.table.n {
		return m.table.mayHave(number, m.phrase.bits)
	}
	b := m.table.blocks[number]
	if b.last < m.since || b.first >= m.until {
		return false
	}
	for i := range m.names {
		if !b.names[m.names[i].column].meets(&m.names[i].set) {
			return false
		}
	}
	return m.table.mayHave(number, m.phrase.bits)
}

// up yields the indexes of the rows that may fit, the oldest first.
func (m *matcher) up(yield func(int64) bool) {
	for from := max(m.from, 0); from < m.before; {
		end := min((from|(blockRows-1))+1, m.before)
		if m.mayBeIn(from / blockRows) {
			for index := from; index < end; index++ {
				if !yield(index) {
					return
				}
			}
		}
		from = end
	}
}

// down yields them with the newest first.
func (m *matcher) down(yield func(int64) bool) {
	least := max(m.from, 0)
	for end := m.before; end > least; {
		from := max((end-1)&^(blockRows-1), least)
		if m.mayBeIn(from / blockRows) {
			for index := end - 1; index >= from; index-- {
				if !yield(index) {
					return
				}
			}
		}
		end = from
	}
}
