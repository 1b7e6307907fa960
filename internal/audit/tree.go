package audit

import (
	"slices"

	"golang.org/x/mod/sumdb/tlog"
)

// tree is the right edge of a Merkle tree (RFC 6962): the roots of its full subtrees,
// largest first. It suffices to append a leaf and to know the root, so memory stays at
// 64 hashes however long the trail is.
type tree struct {
	n    int64
	edge []tlog.Hash
}

// grow appends a leaf.
func (t *tree) grow(leaf tlog.Hash) {
	// Each trailing 1 bit of n is a full subtree; with the new leaf it becomes one of
	// twice the size.
	for m := t.n; m&1 == 1; m >>= 1 {
		last := len(t.edge) - 1
		leaf = tlog.NodeHash(t.edge[last], leaf)
		t.edge = t.edge[:last]
	}
	t.edge = append(t.edge, leaf)
	t.n++
}

// grown returns a copy with leaves appended.
func (t tree) grown(leaves ...tlog.Hash) tree {
	t.edge = slices.Clone(t.edge)
	for _, leaf := range leaves {
		t.grow(leaf)
	}
	return t
}

// root is the tree's hash.
func (t tree) root() tlog.Hash {
	if t.n == 0 {
		empty, _ := tlog.TreeHash(0, nil) // reads nothing
		return empty
	}
	last := len(t.edge) - 1
	h := t.edge[last]
	for i := last - 1; i >= 0; i-- {
		h = tlog.NodeHash(t.edge[i], h)
	}
	return h
}
