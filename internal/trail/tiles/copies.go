package tiles

import (
	"cmp"
	"encoding/json"
	"fmt"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/auditrelay/auditrelay/internal/trail/proof"
)

// A store is its trail's [audit.Files]: nothing vouches for what it gives.

// Records calls handle with the records of the entries in [from, to) of the log with an origin, in
// order, as far as they can be read.
func (s *Store) Records(origin string, from, to int64, handle func(n int64, record []byte) error) error {
	log, err := s.find(origin)
	if err != nil {
		return err
	}
	for n := from / proof.TileWidth; n*proof.TileWidth < to; n++ {
		data, _ := log.widest(bundle(n, 1)) // without it, its entries are left out
		leaves, _ := proof.Leaves(data)
		for i, record := range leaves {
			at := n*proof.TileWidth + int64(i)
			if d, long := proof.ParseDigest(record); long && at >= from && at < to {
				record, _ = log.Record(d)
			}
			if at < from || at >= to || len(record) == 0 {
				continue
			}
			if err := handle(at, record); err != nil {
				return err
			}
		}
	}
	return nil
}

// find is the log with an origin.
func (s *Store) find(origin string) (Log, error) {
	list, err := s.Logs()
	for _, l := range list {
		if l.Origin == origin {
			return s.Log(l.Number), nil
		}
	}
	return Log{}, cmp.Or(err, fmt.Errorf("there is no log with the origin %s", origin))
}

// Tiles gives the hash tiles of the log with an origin to package tlog, to be proven with
// a tree's root.
func (s *Store) Tiles(origin string) tlog.TileReader {
	log, err := s.find(origin)
	return proof.TileReader(func(t tlog.Tile) ([]byte, error) {
		if err != nil {
			return nil, err
		}
		return log.Tile(t)
	})
}

// Published gives the newest checkpoint of each log, for a trail to be held against. Logs
// without a readable one are left out: they are written again.
func (s *Store) Published() (all []proof.Line) {
	list, err := s.Logs()
	if err != nil {
		return nil
	}
	for _, listed := range list {
		l := s.Log(listed.Number)
		line, _ := l.lastLine(false) // without it the key is not known
		signed, _, err := l.Checkpoint()
		if err != nil {
			signed = []byte(line.Checkpoint)
		}
		all = append(all, proof.Line{Checkpoint: string(signed), Key: line.Key})
	}
	return all
}

// History calls handle with each whole line of the history of each log. No signature is checked.
func (s *Store) History(handle func(proof.Line)) {
	list, _ := s.Logs()
	for _, listed := range list {
		_ = s.Log(listed.Number).eachText(func(_ int, text []byte) error { // a damaged one is written again
			var line proof.Line
			if json.Unmarshal(text, &line) == nil {
				handle(line)
			}
			return nil
		})
	}
}
