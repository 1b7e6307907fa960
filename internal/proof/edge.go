package proof

import "golang.org/x/mod/sumdb/tlog"

// Edge is the right edge of a Merkle tree (RFC 6962, section 2.1): the roots of its full
// subtrees. It suffices to append leaves and to know the root, so a tree of any size takes
// 64 hashes at most. The zero value is the empty tree.
type Edge struct {
	n    int64
	full []tlog.Hash // the largest first
}

// Add appends a leaf.
func (e *Edge) Add(leaf tlog.Hash) {
	for n := e.n; n&1 == 1; n >>= 1 { // each trailing 1 bit is a full subtree
		last := len(e.full) - 1
		leaf = tlog.NodeHash(e.full[last], leaf)
		e.full = e.full[:last]
	}
	e.full = append(e.full, leaf)
	e.n++
}

// Len is the number of leaves.
func (e *Edge) Len() int64 { return e.n }

// Root is the tree's hash.
func (e *Edge) Root() tlog.Hash {
	if e.n == 0 {
		empty, _ := tlog.TreeHash(0, nil) // reads nothing
		return empty
	}
	h := e.full[len(e.full)-1]
	for i := len(e.full) - 2; i >= 0; i-- {
		h = tlog.NodeHash(e.full[i], h)
	}
	return h
}
