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
	e.full = GrowEdge(e.full, e.n, leaf)
	e.n++
}

// GrowEdge appends a leaf to the full subtrees of a tree of n leaves, the largest first. It
// writes into edge.
func GrowEdge(edge []tlog.Hash, n int64, leaf tlog.Hash) []tlog.Hash {
	// Each trailing 1 bit of n is a full subtree; with the new leaf it becomes one of
	// twice the size.
	for ; n&1 == 1; n >>= 1 {
		last := len(edge) - 1
		leaf = tlog.NodeHash(edge[last], leaf)
		edge = edge[:last]
	}
	return append(edge, leaf)
}

// Len is the number of leaves.
func (e *Edge) Len() int64 { return e.n }

// Root is the tree's hash.
func (e *Edge) Root() tlog.Hash { return EdgeRoot(e.full) }

// EdgeRoot is the hash of the tree with these full subtrees, the largest first.
func EdgeRoot(edge []tlog.Hash) tlog.Hash {
	if len(edge) == 0 {
		empty, _ := tlog.TreeHash(0, nil) // reads nothing
		return empty
	}
	h := edge[len(edge)-1]
	for i := len(edge) - 2; i >= 0; i-- {
		h = tlog.NodeHash(edge[i], h)
	}
	return h
}
