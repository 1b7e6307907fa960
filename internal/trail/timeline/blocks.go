package timeline

// A search passes over most entries of a long trail, a block of rows at a time.
const blockRows = 256

// block is what can be told of a block's rows without a look at each of them.
type block struct {
	grams                // of the texts
	oldest, newest int64 // of the times
	names          names // of the kinds and the settings, which few blocks have many of
}

// names has a bit for each name of a column, which others may share.
type names [8]uint64

func (n *names) add(column int, id uint16) {
	bit := (uint(id)*31 + uint(column)*17) % uint(64*len(n))
	n[bit/64] |= 1 << (bit % 64)
}

func (n *names) meets(other *names) bool {
	for i := range n {
		if n[i]&other[i] != 0 {
			return true
		}
	}
	return false
}

// add takes in a row with its text.
func (b *block) add(r *row, text []byte) {
	b.grams.add(text)
	b.oldest, b.newest = min(b.oldest, r.Time), max(b.newest, r.Time)
	b.names.add(ofKind, r.Kind)
	b.names.add(ofSubject, r.Subject)
}

// mayFit reports whether a block may have a row that matches and has the phrase.
func (m *matcher) mayFit(at int64) bool {
	if (at+1)*blockRows > m.table.n {
		return true // the keeper may add to it
	}
	b := m.table.blocks[at]
	if b.newest < m.since || b.oldest >= m.until {
		return false
	}
	for i := range m.rare {
		if !b.names.meets(&m.rare[i]) {
			return false
		}
	}
	return b.mayHave(m.phrase.bits)
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

// The columns are looked at in this order: those that leave the fewest rows come first.
const (
	ofEnvironment = iota
	ofSubject
	ofKind
	ofProject
	ofCause
	ofActor
	ofLevels
)

// up yields the indexes of the rows that match and may have the phrase, the oldest first.
func (m *matcher) up(yield func(int64) bool) {
	for from := max(m.from, 0); from < m.before; {
		end := min((from|(blockRows-1))+1, m.before)
		if m.mayFit(from / blockRows) {
			for index := from; index < end; index++ {
				if m.matches(index) && !yield(index) {
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
		if m.mayFit(from / blockRows) {
			for index := end - 1; index >= from; index-- {
				if m.matches(index) && !yield(index) {
					return
				}
			}
		}
		end = from
	}
}
