package tiles

import (
	"cmp"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/auditrelay/auditrelay/internal/trail/audit"
	"github.com/auditrelay/auditrelay/internal/trail/proof"
)

// Copies is a store for its trail ([audit.Files]). It reads single entries that the trail has
// lost, and keeps the bundle read last: lost entries mostly stand side by side.
type Copies struct {
	*Store

	mu     sync.Mutex // guards the fields below
	log    Log
	origin string // of log
	number int64  // of the bundle
	leaves [][]byte
	read   time.Time // when it was
}

// For the time fresh, a bundle is not read again. Later, the keeper may have written it
// again.
const fresh = time.Second

// NewCopies reads from a store.
func NewCopies(s *Store) *Copies { return &Copies{Store: s} }

// Record gives the record of leaf n of the log with an origin. Nothing vouches for it:
// hold it against the signed leaf.
func (c *Copies) Record(origin string, n int64) ([]byte, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.origin != origin || c.number != n/proof.TileWidth || time.Since(c.read) > fresh {
		if err := c.load(origin, n/proof.TileWidth); err != nil {
			return nil, err
		}
	}
	at := int(n % proof.TileWidth)
	if at >= len(c.leaves) || len(c.leaves[at]) == 0 {
		return nil, fmt.Errorf("%s has no entry %d", proof.BundlePath(c.number, proof.TileWidth), at)
	}
	if d, long := proof.ParseDigest(c.leaves[at]); long {
		return c.log.Record(d)
	}
	return c.leaves[at], nil
}

// load reads a bundle, as wide as it is there.
func (c *Copies) load(origin string, number int64) error {
	log, err := c.find(origin)
	if err != nil {
		return err
	}
	c.origin = ""
	data, err := log.widest(bundle(number, 1))
	if err != nil {
		return log.missing(number, err)
	}
	c.log, c.origin, c.number, c.read = log, origin, number, time.Now()
	c.leaves, err = proof.Leaves(data)
	return err
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
func (s *Store) Published() (all []audit.Published) {
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
		all = append(all, audit.Published{Note: signed, PublicKey: line.Key})
	}
	return all
}

// History calls handle with each whole line of the history of each log. No signature is checked.
func (s *Store) History(handle func(audit.Published)) {
	list, _ := s.Logs()
	for _, listed := range list {
		_ = s.Log(listed.Number).eachText(func(_ int, text []byte) error { // a damaged one is written again
			var line proof.Line
			if json.Unmarshal(text, &line) == nil {
				handle(audit.Published{Seq: line.Seq, Note: []byte(line.Checkpoint), PublicKey: line.Key})
			}
			return nil
		})
	}
}
