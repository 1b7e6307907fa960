package proof

import (
	"encoding/binary"
	"fmt"
	"strings"

	"golang.org/x/mod/sumdb/tlog"
)

const (
	// TileHeight is the height of all tiles: https://c2sp.org/tlog-tiles.
	TileHeight = 8
	// TileWidth is how many hashes a full tile has, and how many leaves a full bundle.
	TileWidth = 1 << TileHeight
)

// TilePath is a tile's path below the log: "tile/0/x001/234.p/5", or "tile/0/x001/234" for
// a full tile. Of t it takes L, N and W.
func TilePath(t tlog.Tile) string { return fmt.Sprintf("tile/%d/%s", t.L, numberPath(t.N, t.W)) }

// BundlePath is the path of the n-th entry bundle, with width leaves.
func BundlePath(n int64, width int) string { return "tile/entries/" + numberPath(n, width) }

// numberPath spells a number in groups of three digits, all except the last after an "x".
func numberPath(n int64, width int) string {
	path := fmt.Sprintf("%03d", n%1000)
	for n /= 1000; n > 0; n /= 1000 {
		path = fmt.Sprintf("x%03d/%s", n%1000, path)
	}
	if width < TileWidth {
		path += fmt.Sprintf(".p/%d", width)
	}
	return path
}

// ParsePath undoes [TilePath] and, with a level of -1, [BundlePath].
func ParsePath(path string) (t tlog.Tile, err error) {
	refuse := fmt.Errorf("parse tile path: %q is not one", clipped(path))
	rest, isTile := strings.CutPrefix(path, "tile/")
	level, rest, found := strings.Cut(rest, "/")
	if !isTile || !found {
		return t, refuse
	}
	t = tlog.Tile{H: TileHeight, L: -1, W: TileWidth}
	if level != "entries" {
		l, err := ParseDecimal(level)
		if err != nil || l > 63 {
			return t, refuse
		}
		t.L = int(l)
	}
	if number, width, partial := strings.Cut(rest, ".p/"); partial {
		w, err := ParseDecimal(width)
		if err != nil || w < 1 || w >= TileWidth {
			return t, refuse
		}
		t.W, rest = int(w), number
	}
	for group := range strings.SplitSeq(rest, "/") {
		digits := strings.TrimPrefix(group, "x")
		if len(digits) != 3 || strings.Trim(digits, "0123456789") != "" || t.N > 1<<50 {
			return t, refuse
		}
		for _, digit := range digits {
			t.N = t.N*10 + int64(digit-'0')
		}
	}
	spelled := TilePath(t)
	if t.L < 0 {
		spelled = BundlePath(t.N, t.W)
	}
	if spelled != path {
		return t, refuse
	}
	return t, nil
}

// AppendBundle appends a leaf to an entry bundle: its length in 2 bytes, big-endian, and
// the leaf, of at most [MaxLeaf] bytes (see [LeafData]).
func AppendBundle(dst, leafData []byte) []byte {
	if len(leafData) > MaxLeaf {
		panic(fmt.Sprintf("proof: a leaf of %d bytes does not fit into a bundle", len(leafData)))
	}
	dst = binary.BigEndian.AppendUint16(dst, uint16(len(leafData)))
	return append(dst, leafData...)
}

// Leaves gives the leaves of an entry bundle; they share its memory. Of a file with more leaves
// than a bundle has, it gives one too many. A torn end is an error, after all whole leaves.
func Leaves(bundle []byte) (leaves [][]byte, err error) {
	for rest := bundle; len(rest) > 0 && len(leaves) <= TileWidth; {
		if len(rest) < 2 || len(rest)-2 < int(binary.BigEndian.Uint16(rest)) {
			return leaves, fmt.Errorf("read entry bundle: %d bytes at its end are no whole leaf", len(rest))
		}
		n := 2 + int(binary.BigEndian.Uint16(rest))
		leaves, rest = append(leaves, rest[2:n:n]), rest[n:]
	}
	return leaves, nil
}

// JoinHashes puts hashes one after the other, as in a tile.
func JoinHashes(hashes []tlog.Hash) []byte {
	joined := make([]byte, 0, len(hashes)*tlog.HashSize)
	for _, h := range hashes {
		joined = append(joined, h[:]...)
	}
	return joined
}

// SplitHashes undoes [JoinHashes]; a rest of less than a hash is left out.
func SplitHashes(joined []byte) []tlog.Hash {
	var hashes []tlog.Hash
	for ; len(joined) >= tlog.HashSize; joined = joined[tlog.HashSize:] {
		hashes = append(hashes, tlog.Hash(joined[:tlog.HashSize]))
	}
	return hashes
}

// TileReader reads the hashes of one tile. It implements [tlog.TileReader] for package tlog,
// which proves each tile that it reads.
type TileReader func(t tlog.Tile) ([]byte, error)

// Height implements tlog.TileReader.
func (TileReader) Height() int { return TileHeight }

// ReadTiles implements tlog.TileReader.
func (read TileReader) ReadTiles(tiles []tlog.Tile) (all [][]byte, err error) {
	for _, t := range tiles {
		data, err := read(t)
		if err != nil {
			return nil, err
		}
		all = append(all, data)
	}
	return all, nil
}

// SaveTiles implements tlog.TileReader.
func (TileReader) SaveTiles([]tlog.Tile, [][]byte) {}
