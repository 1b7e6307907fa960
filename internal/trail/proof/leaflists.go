package proof

import (
	"slices"

	"golang.org/x/mod/sumdb/tlog"
)

// LeafLists is a [HashSource] of leaves whose hashes stand in several lists.
type LeafLists struct {
	// Lists begin with the first leaf, and may differ in length. A zero hash is a missing one.
	Lists [][]tlog.Hash
	// Signed are the proven hashes; zero, or too short, for the others.
	Signed []tlog.Hash
}

// Words implements HashSource.
func (l *LeafLists) Words(from, to int64) (words []tlog.Hash, parts bool) {
	for _, list := range l.Lists {
		switch {
		case from >= int64(len(list)):
		case to-from > 1:
			return nil, true
		default:
			words = append(words, list[from])
		}
	}
	return Distinct(words...), false
}

// Proven implements HashSource.
func (l *LeafLists) Proven(from, to int64, hash tlog.Hash, whole bool) {
	if !whole && to-from > 1 {
		return
	}
	l.Signed = append(l.Signed, make([]tlog.Hash, max(0, to-int64(len(l.Signed))))...)
	for i := from; i < to; i++ {
		if l.Signed[i] = hash; whole {
			words, _ := l.Words(i, i+1)
			l.Signed[i] = words[0]
		}
	}
}

// Distinct leaves out zero and repeated hashes. Where two agree, that one comes first.
func Distinct(hashes ...tlog.Hash) (words []tlog.Hash) {
	for _, h := range hashes {
		if at := slices.Index(words, h); at >= 0 {
			words[0], words[at] = words[at], words[0]
		} else if h != (tlog.Hash{}) {
			words = append(words, h)
		}
	}
	return words
}
