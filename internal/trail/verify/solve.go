package verify

import (
	"cmp"
	"context"
	"slices"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/auditrelay/auditrelay/internal/trail/proof"
)

// solver is a log's files as the [proof.HashSource] of its hashes: the entry bundles, and the tiles of
// each level.
type solver struct {
	l *logCheck
	s *scanned
	// levels[k] are the hashes of the full subtrees of 256^k leaves, k from 1, as the tiles
	// of level k say; zero where not known.
	levels [][]tlog.Hash
	wrong  map[tlog.Tile]string // why a tile's file, on levels from 1, is not whole
	proven [][]tlog.Hash        // likewise, as signed; zero where not known
	last   *proof.LeafLists     // of the partial chunk; nil for none
	fell   bool                 // the newest root is not given: chunks from limit on are not proven
	limit  int64
}

// readTiles reads the tiles above the chunks. They are few: one for 65,536 entries.
func (v *solver) readTiles(ctx context.Context) error {
	v.levels, v.wrong = [][]tlog.Hash{nil}, map[tlog.Tile]string{}
	for level := 1; level == 1 || v.s.size>>(proof.TileHeight*level) > 0; level++ {
		count := v.s.size >> (proof.TileHeight * level)
		here := make([]tlog.Hash, count)
		for n := int64(0); n*width < count; n++ {
			w := int(min(width, count-n*width))
			hashes, wrong, err := v.l.readHashes(ctx, level, n, w)
			if err != nil {
				return err
			}
			copy(here[n*width:], hashes)
			if wrong != "" {
				v.wrong[tlog.Tile{L: level, N: n, W: w}] = wrong
			}
		}
		v.levels = append(v.levels, here)
	}
	return nil
}

// prove finds the signed hashes, and gives the largest tree whose root the files lead to.
func (v *solver) prove() (size int64, root tlog.Hash) {
	for _, here := range v.levels {
		v.proven = append(v.proven, make([]tlog.Hash, len(here)))
	}
	if v.s.last != nil {
		v.last = v.s.last.leaves()
	}
	roots := slices.DeleteFunc(slices.Clone(v.l.history), func(c signed) bool { return c.size == 0 || c.size > v.s.size })
	slices.SortStableFunc(roots, func(a, b signed) int { return cmp.Compare(a.size, b.size) })
	all := proof.NewTree(v)
	for _, c := range roots {
		if _, ok := all.Prove(c.size, c.root, proof.Edge{}); ok {
			size, root = c.size, c.root
		}
	}
	for level := 2; level < len(v.proven); level++ {
		for i, h := range v.proven[level] {
			if h == (tlog.Hash{}) {
				v.proven[level][i] = treeOf(v.proven[level-1][i*width : (i+1)*width])
			}
		}
	}
	if v.limit, v.fell = size/width, size < v.s.size; v.fell {
		v.l.entryFinding(proof.KindUnproven, size, v.s.size-1, "", "neither they nor their hashes give the signed root")
	}
	return size, root
}

// Words implements proof.HashSource.
func (v *solver) Words(from, to int64) (words []tlog.Hash, parts bool) {
	n := from / width
	switch {
	case to-from > width:
		if level := levelOf(to - from); level > 0 {
			words = proof.Distinct(v.levels[level][from/(to-from)])
		}
		return words, true
	case v.last != nil && n == v.s.last.n:
		return v.last.Words(from-n*width, to-n*width)
	case to-from == width:
		return proof.Distinct(v.s.bundles[n], v.s.tiles[n], v.levels[1][n]), false
	}
	if i, found := slices.BinarySearch(v.s.sizes, to); found { // the end of an older tree
		words = proof.Distinct(v.s.tails[i])
	}
	return words, false
}

// levelOf is the level of the tiles with the hashes over so many leaves; 0 for none.
func levelOf(leaves int64) int {
	for level := 1; leaves%width == 0; level++ {
		if leaves /= width; leaves == 1 {
			return level
		}
	}
	return 0
}

// Proven implements proof.HashSource.
func (v *solver) Proven(from, to int64, hash tlog.Hash, whole bool) {
	if level := levelOf(to - from); level > 0 {
		v.proven[level][from/(to-from)] = hash
	}
	if v.last != nil && from >= v.s.last.n*width {
		v.last.Proven(from-v.s.last.n*width, to-v.s.last.n*width, hash, whole)
		return
	}
	for n := from / width; whole && (n+1)*width <= to; n++ {
		words, _ := v.Words(n*width, (n+1)*width)
		v.proven[1][n] = words[0]
	}
}
