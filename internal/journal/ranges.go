package journal

import (
	"slices"
	"sort"

	"github.com/auditrelay/auditrelay/internal/store"
)

// span is a run of positions, both ends included.
type span struct{ from, to store.Pos }

// ranges are runs of positions in ascending order. Between two of them there is at least
// one position that is in neither.
type ranges []span

// after is the index of the first run that ends at pos or later.
func (r ranges) after(pos store.Pos) int {
	return sort.Search(len(r), func(i int) bool { return r[i].to >= pos })
}

// missing returns the positions from one to another that are not in r.
func (r ranges) missing(from, to store.Pos) (left ranges) {
	for i := r.after(from); i < len(r) && r[i].from <= to; i++ {
		if r[i].from > from {
			left = append(left, span{from, r[i].from - 1})
		}
		from = r[i].to + 1
	}
	if from <= to {
		left = append(left, span{from, to})
	}
	return left
}

// from returns the positions of r from one on.
func (r ranges) from(pos store.Pos) ranges {
	left := slices.Clone(r[r.after(pos):])
	if len(left) > 0 {
		left[0].from = max(left[0].from, pos)
	}
	return left
}

// with returns r with more positions in it. It may change r.
func (r ranges) with(from, to store.Pos) ranges {
	i := r.after(max(from, 1) - 1) // the run that touches from
	k := i
	for ; k < len(r) && r[k].from <= to+1; k++ {
		from, to = min(from, r[k].from), max(to, r[k].to)
	}
	return slices.Replace(r, i, k, span{from, to})
}

// count is how many positions from one to another are in r.
func (r ranges) count(from, to store.Pos) (n uint64) {
	for i := r.after(from); i < len(r) && r[i].from <= to; i++ {
		n += uint64(min(to, r[i].to)-max(from, r[i].from)) + 1
	}
	return n
}

// size is how many positions are in r.
func (r ranges) size() uint64 { return r.count(0, ^store.Pos(0)) }
