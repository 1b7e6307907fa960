package verify

import (
	"context"
	"slices"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/auditrelay/auditrelay/internal/trail/proof"
)

// solver tells the signed hashes from others. Each hash has several sources:
// the entries, and the tiles on each level. It goes from the signed root down; where the
// sources of a subtree differ, the ones giving its hash are right. So damage is named
// exactly, in whatever files it stands, as long as one source is left for each hash.
type solver struct {
	l *logCheck
	s *scanned
	// levels[k] are the hashes of the full subtrees of 256^k leaves, k from 1, as the tiles
	// of level k say; zero where not known.
	levels [][]tlog.Hash
	wrong  map[tlog.Tile]string // why a tile's file, on levels from 1, is not whole
	proven [][]tlog.Hash        // likewise, as signed; zero where not known
	last   []tlog.Hash          // the leaves of the partial chunk, as signed
	fell   bool                 // the newest root is not given: chunks from limit on are not proven
	limit  int64
}

// readTiles reads the tiles above the chunks. They are few: one for 65,536 entries.
func (v *solver) readTiles(ctx context.Context) error {
	v.levels, v.wrong = [][]tlog.Hash{nil}, map[tlog.Tile]string{}
	for level := 1; v.s.size>>(proof.TileHeight*level) > 0; level++ {
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

// of are the sources' words for the i-th subtree on a level, the likeliest first; zero
// where a source knows nothing.
func (v *solver) of(level int, i int64) []tlog.Hash {
	var words []tlog.Hash
	if level == 1 {
		words = []tlog.Hash{v.s.bundles[i], v.s.tiles[i], v.levels[1][i]}
	} else {
		below := v.levels[level-1][i*width : (i+1)*width]
		words = []tlog.Hash{root(v.likely(level-1, i)), root(below), v.levels[level][i]}
	}
	if words[1] == words[2] {
		words[0], words[2] = words[2], words[0] // two agree
	}
	return words
}

// likely are the likeliest words for the children of the i-th subtree above a level.
func (v *solver) likely(level int, i int64) []tlog.Hash {
	hashes := make([]tlog.Hash, width)
	for k := range hashes {
		words := v.of(level, i*width+int64(k))
		for _, word := range slices.Backward(words) {
			if word != (tlog.Hash{}) {
				hashes[k] = word
			}
		}
	}
	return hashes
}

// prove finds the signed hashes under a root; false if the sources do not give it.
func (v *solver) prove(want tlog.Hash) bool {
	var words [][]tlog.Hash // of the hashes along the edge, the leaves first
	if v.s.last != nil {
		words = leafWords(v.s.last)
	}
	for level := 1; level < len(v.levels); level++ {
		n := int64(len(v.levels[level]))
		for i := n - n%width; i < n; i++ {
			words = append(words, v.of(level, i))
		}
	}
	signed, ok := choose(words, func(hashes []tlog.Hash) bool { return proof.EdgeOfTiles(v.alongEdge(hashes)).Root() == want })
	if !ok {
		return false
	}
	v.spread(v.alongEdge(signed))
	return true
}

// alongEdge are the hashes along the edge by level, those of the leaves first.
func (v *solver) alongEdge(hashes []tlog.Hash) (levels [][]tlog.Hash) {
	for level := range v.levels {
		n := v.s.size >> (proof.TileHeight * level) % width
		levels, hashes = append(levels, hashes[:n]), hashes[n:]
	}
	return levels
}

// spread takes the signed hashes along the edge, and proves their children.
func (v *solver) spread(signed [][]tlog.Hash) {
	v.proven = make([][]tlog.Hash, len(v.levels))
	for level := 1; level < len(v.levels); level++ {
		n := int64(len(v.levels[level]))
		v.proven[level] = make([]tlog.Hash, n)
		copy(v.proven[level][n-n%width:], signed[level])
	}
	v.last = signed[0]
	for level := len(v.levels) - 1; level >= 2; level-- {
		for i, want := range v.proven[level] {
			if want != (tlog.Hash{}) {
				v.descend(level, int64(i), want)
			}
		}
	}
}

// descend proves the children of one subtree.
func (v *solver) descend(level int, i int64, want tlog.Hash) {
	words := make([][]tlog.Hash, width)
	for k := range words {
		words[k] = v.of(level-1, i*width+int64(k))
	}
	if children, ok := choose(words, func(hashes []tlog.Hash) bool { return treeRoot(hashes) == want }); ok {
		copy(v.proven[level-1][i*width:], children)
	}
}

// leafWords are the sources' words for a chunk's leaves.
func leafWords(c *chunk) [][]tlog.Hash {
	words := make([][]tlog.Hash, c.width)
	for i := range words {
		words[i] = make([]tlog.Hash, 2)
		if c.bundle != nil {
			words[i][0] = c.bundle[i]
		}
		if c.tile != nil {
			words[i][1] = c.tile[i]
		}
	}
	return words
}

// maxDoubts bounds the hashes of one tile with different words: all combinations are
// tried; with more, each source is tried as a whole.
const maxDoubts = 8

// choose finds one word for each hash, accepted together by right.
func choose(words [][]tlog.Hash, right func([]tlog.Hash) bool) ([]tlog.Hash, bool) {
	chosen := make([]tlog.Hash, len(words))
	var doubts []int
	most := 1
	for i, w := range words {
		words[i] = distinct(w)
		if len(words[i]) == 0 {
			return nil, false
		}
		chosen[i] = words[i][0]
		if len(words[i]) > 1 {
			doubts = append(doubts, i)
			most = max(most, len(words[i]))
		}
	}
	for source := range most { // each source as a whole
		for _, i := range doubts {
			chosen[i] = words[i][min(source, len(words[i])-1)]
		}
		if right(chosen) {
			return chosen, true
		}
	}
	if len(doubts) > maxDoubts {
		return nil, false
	}
	return chosen, combine(words, doubts, chosen, right)
}

// combine tries all combinations of the doubtful words.
func combine(words [][]tlog.Hash, doubts []int, chosen []tlog.Hash, right func([]tlog.Hash) bool) bool {
	if len(doubts) == 0 {
		return right(chosen)
	}
	for _, word := range words[doubts[0]] {
		chosen[doubts[0]] = word
		if combine(words, doubts[1:], chosen, right) {
			return true
		}
	}
	return false
}

// distinct leaves out zero and repeated words.
func distinct(words []tlog.Hash) (known []tlog.Hash) {
	for _, w := range words {
		if w != (tlog.Hash{}) && !slices.Contains(known, w) {
			known = append(known, w)
		}
	}
	return known
}
