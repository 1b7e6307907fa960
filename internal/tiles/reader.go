package tiles

import (
	"fmt"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/auditrelay/auditrelay/internal/proof"
)

// Tiles gives the hash tiles of the log with an origin to package tlog, to be proven with
// a tree's root.
func (s *Store) Tiles(origin string) tlog.TileReader { return finder{s, origin} }

// finder seeks the log anew at each reading: it may come to be.
type finder struct {
	store  *Store
	origin string
}

// Height implements tlog.TileReader.
func (finder) Height() int { return proof.TileHeight }

// SaveTiles implements tlog.TileReader.
func (finder) SaveTiles([]tlog.Tile, [][]byte) {}

// ReadTiles implements tlog.TileReader.
func (f finder) ReadTiles(tiles []tlog.Tile) ([][]byte, error) {
	list, err := f.store.Logs()
	if err != nil {
		return nil, err
	}
	for _, l := range list {
		if l.Origin == f.origin {
			return reader{f.store.Log(l.Number)}.ReadTiles(tiles)
		}
	}
	return nil, fmt.Errorf("there is no log with the origin %s", f.origin)
}

// reader is a log as a tlog.TileReader.
type reader struct{ Log }

// Height implements tlog.TileReader.
func (reader) Height() int { return proof.TileHeight }

// SaveTiles implements tlog.TileReader.
func (reader) SaveTiles([]tlog.Tile, [][]byte) {}

// ReadTiles implements tlog.TileReader.
func (r reader) ReadTiles(tiles []tlog.Tile) ([][]byte, error) {
	var all [][]byte
	for _, t := range tiles {
		data, err := r.Tile(t)
		if err != nil {
			return nil, err
		}
		all = append(all, data)
	}
	return all, nil
}
