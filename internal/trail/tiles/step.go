package tiles

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/auditrelay/auditrelay/internal/trail/proof"
)

// step is the writing of some entries.
type step struct {
	*writer
	edge   *edge  // after the newest entry
	bundle []byte // of its last, partial bundle
	out    output
	lost   int64
}

// begin reads the partial bundle. errDamaged: the tiles have other hashes.
func (s *step) begin() error {
	width := int(s.edge.Len() % proof.TileWidth)
	if width == 0 {
		return nil
	}
	old, err := s.Bundle(s.edge.Len()/proof.TileWidth, width)
	leaves, torn := proof.Leaves(old)
	if err = errors.Join(err, torn); err != nil {
		return fmt.Errorf("%w: %w", errDamaged, err)
	}
	for i, leaf := range leaves {
		if len(leaf) > 0 && tlog.RecordHash(leaf) != s.edge.levels[0][i] { // an empty one is a lost entry
			return fmt.Errorf("%w: entry %d of %s", errDamaged, i, proof.BundlePath(s.edge.Len()/proof.TileWidth, width))
		}
	}
	s.bundle = bytes.Clone(old)
	return nil
}

// put adds the next entry, if the record is the signed one.
func (s *step) put(record []byte) error {
	leaf := proof.LeafData(record)
	if tlog.RecordHash(leaf) != s.leaves[s.edge.Len()-s.written.Len()] {
		return s.restore()
	}
	if d, long := proof.ParseDigest(leaf); long && len(record) > proof.MaxLeaf {
		if err := s.entryFile(s.edge.Len(), d.Path(), record); err != nil {
			return err
		}
	}
	return s.leaf(leaf)
}

// fill adds the lost entries before n.
func (s *step) fill(n int64) error {
	for s.edge.Len() < n {
		if err := s.restore(); err != nil {
			return err
		}
	}
	return nil
}

// restore adds the next entry from the log's own bundle, or as the signed entry of a
// loss; else as an empty one, without proof.
func (s *step) restore() error {
	n := s.edge.Len()
	want := s.leaves[n-s.written.Len()]
	if leaf := proof.LostLeaf(s.base + n); tlog.RecordHash(leaf) == want {
		return s.leaf(leaf)
	}
	leaf, err := s.entry(n)
	if err != nil || tlog.RecordHash(leaf) != want {
		leaf = nil
		if n >= s.moved {
			s.lost++
		}
	}
	return s.leaf(leaf)
}

// entry reads an entry's leaf from its bundle. Nothing vouches for it.
func (l Log) entry(n int64) ([]byte, error) {
	width := int(n%proof.TileWidth) + 1
	data, err := l.Bundle(n/proof.TileWidth, width)
	if err != nil {
		return nil, err
	}
	leaves, err := proof.Leaves(data)
	return leaves[width-1], err
}

// leaf adds the leaf of the next entry, and writes the completed tiles.
func (s *step) leaf(data []byte) error {
	s.bundle = proof.AppendBundle(s.bundle, data)
	n := s.edge.Len()
	var failed error
	s.edge.grow(s.leaves[n-s.written.Len()], func(t tlog.Tile, hashes []tlog.Hash) {
		failed = errors.Join(failed, s.out.file(proof.TilePath(t), proof.JoinHashes(hashes)))
	})
	if s.edge.Len()%proof.TileWidth == 0 {
		failed = errors.Join(failed, s.entryFile(n, proof.BundlePath(n/proof.TileWidth, proof.TileWidth), s.bundle))
		s.bundle = nil
	}
	return failed
}

// entryFile has a file with entry n written, unless it was moved to an archive.
func (s *step) entryFile(n int64, name string, data []byte) error {
	if n < s.moved {
		if _, err := os.Stat(s.path(name)); errors.Is(err, fs.ErrNotExist) {
			return nil
		}
	}
	return s.out.file(name, data)
}

// finish writes the partial tiles, and waits until all of it is durable.
func (s *step) finish() error {
	n := s.edge.Len()
	for _, t := range edgeTiles(n) {
		if err := s.out.file(proof.TilePath(t), proof.JoinHashes(s.edge.levels[t.L])); err != nil {
			return err
		}
	}
	if len(s.bundle) > 0 {
		if err := s.out.file(proof.BundlePath(n/proof.TileWidth, int(n%proof.TileWidth)), s.bundle); err != nil {
			return err
		}
	}
	return s.out.flush()
}

// removePartials removes files narrower than a tile's widest one, and leftovers of an
// earlier tree of before leaves. One left by a crash does no harm.
func (l Log) removePartials(before, size int64) {
	now := map[tlog.Tile]int{} // the width of each partial tile
	for _, t := range withBundle(before) {
		now[wide(t)] = 0
	}
	for _, t := range withBundle(size) {
		now[wide(t)] = t.W
	}
	for full, width := range now {
		for _, w := range l.widths(full) {
			if w != width {
				_ = os.Remove(l.path(path.Join(proof.TilePath(full)+".p", strconv.Itoa(w))))
			}
		}
		if width == 0 {
			_ = os.Remove(l.path(proof.TilePath(full) + ".p"))
		}
	}
}

// withBundle are the partial tiles of a tree of n leaves, its partial bundle too.
func withBundle(n int64) []tlog.Tile {
	tiles := edgeTiles(n)
	if width := int(n % proof.TileWidth); width > 0 {
		tiles = append(tiles, bundle(n/proof.TileWidth, width))
	}
	return tiles
}

func wide(t tlog.Tile) tlog.Tile {
	t.W = proof.TileWidth
	return t
}

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
