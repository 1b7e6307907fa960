package verify

import (
	"crypto/sha256"
	"math/bits"
	"slices"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/auditrelay/auditrelay/internal/proof"
)

// width is how many leaves a chunk has: one entry bundle, and one tile of leaf hashes.
const width = proof.TileWidth

// nodeHash is the hash of a tree's node (RFC 6962), as [tlog.NodeHash], without its
// allocations.
func nodeHash(left, right *tlog.Hash) tlog.Hash {
	var node [1 + 2*tlog.HashSize]byte
	node[0] = 1
	copy(node[1:], left[:])
	copy(node[1+tlog.HashSize:], right[:])
	return sha256.Sum256(node[:])
}

// pyramid has all nodes over up to 256 leaves: first the leaves, then each level above.
type pyramid [][]tlog.Hash

func pyramidOf(leaves []tlog.Hash) pyramid {
	p := pyramid{leaves}
	for level := leaves; len(level) > 1; {
		above := make([]tlog.Hash, len(level)/2)
		for i := range above {
			above[i] = nodeHash(&level[2*i], &level[2*i+1])
		}
		p = append(p, above)
		level = above
	}
	return p
}

// peaks are the roots of the full subtrees of the first n leaves, the largest first.
func (p pyramid) peaks(n int) (peaks []tlog.Hash) {
	for at, level := 0, bits.Len(uint(n))-1; level >= 0; level-- {
		if n>>level&1 == 1 {
			peaks = append(peaks, p[level][at>>level])
			at += 1 << level
		}
	}
	return peaks
}

// peaksOf are the peaks over hashes of equal subtrees.
func peaksOf(hashes []tlog.Hash) []tlog.Hash { return pyramidOf(hashes).peaks(len(hashes)) }

// fold is the root over peaks; none are the empty tree.
func fold(peaks []tlog.Hash) tlog.Hash {
	if len(peaks) == 0 {
		return sha256.Sum256(nil)
	}
	root := peaks[len(peaks)-1]
	for _, peak := range slices.Backward(peaks[:len(peaks)-1]) {
		root = nodeHash(&peak, &root)
	}
	return root
}

// subtree is the hash over a full tile's hashes.
func subtree(hashes []tlog.Hash) tlog.Hash { return fold(peaksOf(hashes)) }

// edge is the right edge of a growing tree: the roots of its full subtrees.
type edge struct {
	n     int64
	peaks []tlog.Hash
}

// grow appends the hash of a leaf, or of equally large subtrees.
func (e *edge) grow(h tlog.Hash) {
	for m := e.n; m&1 == 1; m >>= 1 {
		last := len(e.peaks) - 1
		h = nodeHash(&e.peaks[last], &h)
		e.peaks = e.peaks[:last]
	}
	e.peaks = append(e.peaks, h)
	e.n++
}

// with is the root of the tree with tail behind it; tail is less than one more grow would
// add; the zero tail is nothing.
func (e *edge) with(tail tlog.Hash) tlog.Hash {
	if tail == (tlog.Hash{}) {
		return fold(e.peaks)
	}
	for _, peak := range slices.Backward(e.peaks) {
		tail = nodeHash(&peak, &tail)
	}
	return tail
}
