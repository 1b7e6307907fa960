package tiles

import (
	"slices"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/auditrelay/auditrelay/internal/trail/proof"
)

// edge is the right edge of a tree, with the hashes of its partial tiles.
type edge struct {
	proof.Edge

	// levels have the hashes of each level's last tile, less than a full one; level l has
	// those of subtrees of 256^l leaves.
	levels [][]tlog.Hash
}

// grow appends a leaf, and gives each completed tile to full.
func (e *edge) grow(leaf tlog.Hash, full func(t tlog.Tile, hashes []tlog.Hash)) {
	e.Grow(leaf, func(height int, index int64, h tlog.Hash) {
		level := height / proof.TileHeight
		if height%proof.TileHeight != 0 {
			return
		}
		if level == len(e.levels) {
			e.levels = append(e.levels, nil)
		}
		e.levels[level] = append(e.levels[level], h)
		if hashes := e.levels[level]; len(hashes) == proof.TileWidth {
			full(tile(level, index/proof.TileWidth, proof.TileWidth), hashes)
			e.levels[level] = hashes[:0:0]
		}
	})
}

// clone is a copy that grows by itself.
func (e *edge) clone() *edge {
	c := &edge{Edge: e.With()}
	for _, hashes := range e.levels {
		c.levels = append(c.levels, slices.Clone(hashes))
	}
	return c
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
