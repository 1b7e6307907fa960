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

// spelling makes the paths of package tlog, which name the height too, those of tlog-tiles.
var spelling = strings.NewReplacer("tile/8/data/", "tile/entries/", "tile/8/", "tile/")

// TilePath is a tile's path below the log: "tile/0/x001/234.p/5", or "tile/0/x001/234" for
// a full tile; on level -1 it is that of an entry bundle. Of t it takes L, N and W.
func TilePath(t tlog.Tile) string {
	t.H = TileHeight
	return spelling.Replace(t.Path())
}

// BundlePath is the path of the n-th entry bundle, with width leaves.
func BundlePath(n int64, width int) string { return TilePath(tlog.Tile{L: -1, N: n, W: width}) }

// ParsePath undoes [TilePath].
func ParsePath(path string) (tlog.Tile, error) {
	rest := strings.TrimPrefix(path, "tile/")
	if bundle, isBundle := strings.CutPrefix(rest, "entries/"); isBundle {
		rest = "data/" + bundle
	}
	t, err := tlog.ParseTilePath(fmt.Sprintf("tile/%d/%s", TileHeight, rest))
	if err != nil || t.L > 63 || TilePath(t) != path {
		return tlog.Tile{}, fmt.Errorf("parse tile path: %q is not one", clipped(path))
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
