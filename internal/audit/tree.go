package audit

import (
	"slices"

	"golang.org/x/mod/sumdb/tlog"

	tlogproof "github.com/auditrelay/auditrelay/internal/proof"
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
	t.edge = tlogproof.GrowEdge(t.edge, t.n, leaf)
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
func (t tree) root() tlog.Hash { return tlogproof.EdgeRoot(t.edge) }
