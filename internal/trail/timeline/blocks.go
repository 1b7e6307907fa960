package timeline

// A search for words passes over most entries of a long trail, a block of rows at a time: see [grams].
const blockRows = 256

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

// up yields the indexes of the rows that match and may have the phrase, the oldest first.
func (m *matcher) up(yield func(int64) bool) {
	for from := max(m.from, 0); from < m.before; {
		end := min((from|(blockRows-1))+1, m.before)
		if m.table.mayHave(from/blockRows, m.phrase.bits) {
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
		if m.table.mayHave(from/blockRows, m.phrase.bits) {
			for index := end - 1; index >= from; index-- {
				if m.matches(index) && !yield(index) {
					return
				}
			}
		}
		end = from
	}
}
