package tiles

import (
	"slices"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/auditrelay/auditrelay/internal/proof"
)

// edge is the right edge of a tree, as tiles: it suffices to append a leaf, to know the
// root, and to write the partial tiles.
type edge struct {
	n int64
	// levels have the hashes of each level's last tile, less than a full one; level l has
	// those of subtrees of 256^l leaves.
	levels [][]tlog.Hash
}

// grow appends a leaf, and gives each completed tile to full.
func (e *edge) grow(leaf tlog.Hash, full func(t tlog.Tile, hashes []tlog.Hash)) {
	for level, h := 0, leaf; ; level++ {
		if level == len(e.levels) {
			e.levels = append(e.levels, nil)
		}
		e.levels[level] = append(e.levels[level], h)
		if hashes := e.levels[level]; len(hashes) < proof.TileWidth {
			break
		} else {
			if full != nil {
				full(tile(level, e.n>>(proof.TileHeight*(level+1)), proof.TileWidth), hashes)
			}
			h = subtree(hashes)
			e.levels[level] = hashes[:0:0]
		}
	}
	e.n++
}

// grown is a copy with leaves appended.
func (e *edge) grown(leaves ...tlog.Hash) *edge {
	c := &edge{n: e.n}
	for _, hashes := range e.levels {
		c.levels = append(c.levels, slices.Clone(hashes))
	}
	for _, leaf := range leaves {
		c.grow(leaf, nil)
	}
	return c
}

// root is the tree's hash: RFC 6962, section 2.1.
func (e *edge) root() tlog.Hash {
	var peaks []tlog.Hash // of the full subtrees, the largest first
	for _, hashes := range slices.Backward(e.levels) {
		for at, width := 0, proof.TileWidth/2; width > 0; width /= 2 {
			if len(hashes)&width != 0 {
				peaks = append(peaks, subtree(hashes[at:at+width]))
				at += width
			}
		}
	}
	if len(peaks) == 0 {
		empty, _ := tlog.TreeHash(0, nil) // reads nothing
		return empty
	}
	root := peaks[len(peaks)-1]
	for _, h := range slices.Backward(peaks[:len(peaks)-1]) {
		root = tlog.NodeHash(h, root)
	}
	return root
}

// subtree is the root of a full subtree: 1, 2, 4 and so on hashes.
func subtree(hashes []tlog.Hash) tlog.Hash {
	if len(hashes) == 1 {
		return hashes[0]
	}
	half := len(hashes) / 2
	return tlog.NodeHash(subtree(hashes[:half]), subtree(hashes[half:]))
}

func tile(level int, n int64, width int) tlog.Tile {
	return tlog.Tile{H: proof.TileHeight, L: level, N: n, W: width}
}

// edgeTiles are the tiles with the edge of a tree of n leaves.
func edgeTiles(n int64) (tiles []tlog.Tile) {
	for level := 0; n>>(proof.TileHeight*level) > 0; level++ {
		here := n >> (proof.TileHeight * level)
		if width := int(here % proof.TileWidth); width > 0 {
			tiles = append(tiles, tile(level, here/proof.TileWidth, width))
		}
	}
	return tiles
}

func joined(hashes []tlog.Hash) []byte {
	data := make([]byte, 0, len(hashes)*tlog.HashSize)
	for _, h := range hashes {
		data = append(data, h[:]...)
	}
	return data
}

// hashesOf undoes joined; nil where data is not width hashes.
func hashesOf(data []byte, width int) []tlog.Hash {
	if len(data) != width*tlog.HashSize {
		return nil
	}
	hashes := make([]tlog.Hash, width)
	for i := range hashes {
		hashes[i] = tlog.Hash(data[i*tlog.HashSize : (i+1)*tlog.HashSize])
	}
	return hashes
}
