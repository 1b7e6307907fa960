package workspacesim

import "slices"

// Range holds the sequence numbers from From up to, and without, To.
type Range struct {
	From uint64 `json:"from"`
	To   uint64 `json:"to"`
}

// rangeSet is a set of numbers as ascending ranges. No two of them touch.
type rangeSet []Range

// add adds r. It must not be empty, nor overlap the set.
func (s *rangeSet) add(r Range) {
	i, _ := slices.BinarySearchFunc(*s, r.From, func(x Range, from uint64) int {
		if x.From < from {
			return -1
		}
		return 1
	})
	joinsLeft := i > 0 && (*s)[i-1].To == r.From
	joinsRight := i < len(*s) && (*s)[i].From == r.To
	switch {
	case joinsLeft && joinsRight:
		(*s)[i-1].To = (*s)[i].To
		*s = slices.Delete(*s, i, i+1)
	case joinsLeft:
		(*s)[i-1].To = r.To
	case joinsRight:
		(*s)[i].From = r.From
	default:
		*s = slices.Insert(*s, i, r)
	}
}
