package proof

import (
	"crypto/sha256"
	"math/bits"
	"slices"

	"golang.org/x/mod/sumdb/tlog"
)

// Edge is the right edge of a Merkle tree (RFC 6962, section 2.1): the roots of its full
// subtrees. It suffices to append leaves and to know the root, so a tree of any size takes
// 64 hashes at most. The zero value is the empty tree. A copy shares its memory: see [Edge.With].
type Edge struct {
	n    int64
	full []tlog.Hash // the largest first
}

// EdgeOf is the edge of a tree of n leaves with the given full subtrees, the largest first.
// Of another number of subtrees than such a tree has, it is the empty tree, and ok is false.
func EdgeOf(n int64, full []tlog.Hash) (e Edge, ok bool) {
	if n < 0 || bits.OnesCount64(uint64(n)) != len(full) {
		return Edge{}, false
	}
	return Edge{n, full}, true
}

// Add appends a leaf.
func (e *Edge) Add(leaf tlog.Hash) {
	// Each trailing 1 bit of n is a full subtree; with the new leaf it becomes one of
	// twice the size.
	for n := e.n; n&1 == 1; n >>= 1 {
		last := len(e.full) - 1
		leaf = NodeHash(&e.full[last], &leaf)
		e.full = e.full[:last]
	}
	e.full = append(e.full, leaf)
	e.n++
}

// With is a copy with leaves appended.
func (e Edge) With(leaves ...tlog.Hash) Edge {
	e.full = slices.Clone(e.full)
	for _, leaf := range leaves {
		e.Add(leaf)
	}
	return e
}

// Len is the number of leaves.
func (e Edge) Len() int64 { return e.n }

// Full are the roots of the full subtrees, the largest first.
func (e Edge) Full() []tlog.Hash { return e.full }

// Root is the tree's hash.
func (e Edge) Root() tlog.Hash {
	if len(e.full) == 0 {
		return sha256.Sum256(nil)
	}
	last := len(e.full) - 1
	return Edge{full: e.full[:last]}.RootWith(e.full[last])
}

// RootWith is the hash of the tree with a further, smaller subtree after its last leaf.
func (e Edge) RootWith(tail tlog.Hash) tlog.Hash {
	for _, h := range slices.Backward(e.full) {
		tail = NodeHash(&h, &tail)
	}
	return tail
}

// NodeHash is the hash of a tree's node, as [tlog.NodeHash], without its allocations.
func NodeHash(left, right *tlog.Hash) tlog.Hash {
	var node [1 + 2*tlog.HashSize]byte
	node[0] = 1
	copy(node[1:], left[:])
	copy(node[1+tlog.HashSize:], right[:])
	return sha256.Sum256(node[:])
}
