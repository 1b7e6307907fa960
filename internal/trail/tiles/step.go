package tiles

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strconv"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/auditrelay/auditrelay/internal/trail/proof"
)

// step is the writing of some entries.
type step struct {
	*writer
	next   int64  // the entry to be added
	bundle []byte // of the entries before it that fill none
	out    output
	lost   int64
}

// begin reads the partial bundle. errDamaged: the tiles have other hashes.
func (s *step) begin() error {
	n, width := s.next/proof.TileWidth, int(s.next%proof.TileWidth)
	if width == 0 {
		return nil
	}
	old, err := s.Bundle(n, width)
	leaves, torn := proof.Leaves(old)
	hashes, unread := s.Tile(tile(0, n, width))
	if err = errors.Join(err, torn, unread); err != nil {
		return fmt.Errorf("%w: %w", errDamaged, err)
	}
	for i, leaf := range leaves {
		h := tlog.RecordHash(leaf)
		if len(leaf) > 0 && !bytes.Equal(h[:], hashes[i*tlog.HashSize:(i+1)*tlog.HashSize]) { // an empty one is a lost entry
			return fmt.Errorf("%w: entry %d of %s", errDamaged, i, proof.BundlePath(n, width))
		}
	}
	s.bundle = bytes.Clone(old)
	return nil
}

// want is the hash of the next entry's leaf.
func (s *step) want() tlog.Hash { return s.hashes[tlog.StoredHashIndex(0, s.next)] }

// put adds the next entry, if the record is the signed one.
func (s *step) put(record []byte) error {
	leaf := proof.LeafData(record)
	if tlog.RecordHash(leaf) != s.want() {
		return s.restore()
	}
	if d, long := proof.ParseDigest(leaf); long && len(record) > proof.MaxLeaf {
		if err := s.entryFile(s.next, d.Path(), record); err != nil {
			return err
		}
	}
	return s.leaf(leaf)
}

// fill adds the lost entries before n.
func (s *step) fill(n int64) error {
	for s.next < n {
		if err := s.restore(); err != nil {
			return err
		}
	}
	return nil
}

// restore adds the next entry from the log's own bundle, or as the signed entry of a
// loss; else as an empty one, without proof.
func (s *step) restore() error {
	n, want := s.next, s.want()
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

// leaf adds the leaf of the next entry, and writes a full bundle.
func (s *step) leaf(data []byte) error {
	s.bundle = proof.AppendBundle(s.bundle, data)
	if s.next++; s.next%proof.TileWidth > 0 {
		return nil
	}
	full := s.bundle
	s.bundle = nil
	return s.entryFile(s.next-1, proof.BundlePath(s.next/proof.TileWidth-1, proof.TileWidth), full)
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

// finish writes the tiles and the partial bundle, and waits until all of it is durable.
func (s *step) finish() error {
	for _, t := range tlog.NewTiles(proof.TileHeight, s.written.Size, s.next) {
		data, err := tlog.ReadTileData(t, s.writer)
		if err == nil {
			err = s.out.file(proof.TilePath(t), data)
		}
		if err != nil {
			return err
		}
	}
	if len(s.bundle) > 0 {
		if err := s.out.file(proof.TilePath(bundle(s.next/proof.TileWidth, int(s.next%proof.TileWidth))), s.bundle); err != nil {
			return err
		}
	}
	return s.out.flush()
}

// removePartials removes files narrower than a tile's widest one, and leftovers of an
// earlier tree of before leaves. One left by a crash does no harm.
func (l Log) removePartials(before, size int64) {
	now := map[tlog.Tile]int{} // the width of each partial tile
	for _, t := range partials(before) {
		now[wide(t)] = 0
	}
	for _, t := range partials(size) {
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

// partials are the partial tiles of a tree of n leaves, its partial bundle too.
func partials(n int64) (tiles []tlog.Tile) {
	for level := 0; n>>(proof.TileHeight*level) > 0; level++ {
		here := n >> (proof.TileHeight * level)
		if width := int(here % proof.TileWidth); width > 0 {
			tiles = append(tiles, tile(level, here/proof.TileWidth, width))
		}
	}
	if width := int(n % proof.TileWidth); width > 0 {
		tiles = append(tiles, bundle(n/proof.TileWidth, width))
	}
	return tiles
}

func wide(t tlog.Tile) tlog.Tile {
	t.W = proof.TileWidth
	return t
}

func tile(level int, n int64, width int) tlog.Tile {
	return tlog.Tile{H: proof.TileHeight, L: level, N: n, W: width}
}
