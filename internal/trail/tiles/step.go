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
	hashes, unread := s.kept(0, s.next-int64(width), s.next)
	if err = errors.Join(err, torn, unread); err != nil {
		return fmt.Errorf("%w: %w", errDamaged, err)
	}
	for i, leaf := range leaves {
		if len(leaf) > 0 && tlog.RecordHash(leaf) != hashes[i] { // an empty one is a lost entry
			return fmt.Errorf("%w: entry %d of %s", errDamaged, i, proof.BundlePath(n, width))
		}
	}
	s.bundle = bytes.Clone(old)
	return nil
}

// want is the hash of the next entry's leaf.
func (s *step) want() tlog.Hash { return s.leaves[s.next-s.written.Len()] }

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
	from, fresh := s.written.Len(), s.leaves
	for level := 0; len(fresh) > 0; level++ {
		first := from / proof.TileWidth
		hashes, err := s.kept(level, first*proof.TileWidth, from)
		if err != nil {
			return err
		}
		hashes, fresh, from = append(hashes, fresh...), nil, first
		for tiled := range slices.Chunk(hashes, proof.TileWidth) {
			if err := s.out.file(proof.TilePath(tile(level, first, len(tiled))), proof.JoinHashes(tiled)); err != nil {
				return err
			}
			if first++; len(tiled) == proof.TileWidth {
				fresh = append(fresh, proof.Edge{}.With(tiled...).Root())
			}
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
	for level := -1; size>>(proof.TileHeight*max(level, 0)) > 0; level++ { // the bundles, and each level of tiles
		now := size >> (proof.TileHeight * max(level, 0))
		for _, end := range []int64{before >> (proof.TileHeight * max(level, 0)), now} {
			t := tile(level, end/proof.TileWidth, proof.TileWidth)
			for _, width := range l.widths(t) {
				if t.N != now/proof.TileWidth || int64(width) != now%proof.TileWidth {
					_ = os.Remove(l.path(path.Join(proof.TilePath(t)+".p", strconv.Itoa(width))))
				}
			}
			_ = os.Remove(l.path(proof.TilePath(t) + ".p")) // it stays unless it is empty
		}
	}
}

func wide(t tlog.Tile) tlog.Tile {
	t.W = proof.TileWidth
	return t
}

func tile(level int, n int64, width int) tlog.Tile {
	return tlog.Tile{H: proof.TileHeight, L: level, N: n, W: width}
}
