package tiles

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/auditrelay/auditrelay/internal/audit"
	"github.com/auditrelay/auditrelay/internal/proof"
)

// Source is a store in the place of its trail: its logs can be copied, each file proven
// anew. It implements [Trail].
type Source struct {
	store       *Store
	generations []audit.Generation
	archives    map[string][]Log // where archived bundles are, by origin
	// passArchived: entries in other archives are left out.
	passArchived bool
}

// apart is the distance of two generations' indexes in a Source.
const apart = 1 << 40

// Source opens the store as a source, with the logs there are now.
func (s *Store) Source() (*Source, error) {
	list, err := s.Logs()
	if err != nil {
		return nil, err
	}
	source := &Source{store: s}
	for _, listed := range list {
		l := s.Log(listed.Number)
		line, err := l.lastLine(false)
		if err != nil {
			return nil, err
		}
		c, err := l.signed(line.Key)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", l.dir, err)
		}
		source.generations = append(source.generations, audit.Generation{
			Base: int64(listed.Number) * apart, Origin: c.Origin, PublicKey: line.Key, Size: c.Size, Root: c.Root,
		})
	}
	return source, nil
}

// Generations are those of the logs; only the distances between their bases are made up.
func (s *Source) Generations() []audit.Generation { return s.generations }

// Checkpoints implements [Trail].
func (s *Source) Checkpoints(ctx context.Context, from uint64, handle func(audit.Kept) error, caughtUp func() error) error {
	for _, g := range s.generations {
		l, size := s.logAt(g.Base), int64(0)
		err := l.eachLine(func(line Line) error {
			c, err := parseNote(line.Checkpoint)
			if err != nil || ctx.Err() != nil {
				return fmt.Errorf("read checkpoint %d: %w", line.Seq, cmp.Or(err, ctx.Err()))
			}
			before := size
			if size = c.Size; line.Seq < from || c.Size > g.Size {
				return nil
			}
			leaves, err := l.leaves(before, c.Size)
			if err != nil {
				return err
			}
			return handle(audit.Kept{
				Seq: line.Seq, Base: g.Base, Origin: c.Origin, PublicKey: line.Key,
				Note: line.Checkpoint, Size: c.Size, Root: c.Root, Leaves: leaves,
			})
		})
		if err != nil {
			return err
		}
	}
	return caughtUp()
}

func (s *Source) logAt(index int64) Log { return s.store.Log(int(index / apart)) }

// leaves reads leaf hashes from the tiles. Nothing vouches for them.
func (l Log) leaves(from, to int64) ([]tlog.Hash, error) {
	var leaves []tlog.Hash
	for n := from; n < to; {
		number := n / proof.TileWidth
		width := int(min(to-number*proof.TileWidth, proof.TileWidth))
		data, err := l.Tile(tile(0, number, width))
		if err != nil {
			return nil, err
		}
		leaves = append(leaves, hashesOf(data, width)[n%proof.TileWidth:]...)
		n = number*proof.TileWidth + int64(width)
	}
	return leaves, nil
}

// Archived has the source read archived entries from a folder. Nothing vouches for them: the
// copying proves them.
func (s *Source) Archived(dir string) error {
	list, err := Open(dir).Logs()
	if err == nil && len(list) == 0 {
		err = fmt.Errorf("%s has no log with a checkpoint", dir)
	}
	if err != nil {
		return fmt.Errorf("open the archive: %w", err)
	}
	if s.archives == nil {
		s.archives = map[string][]Log{}
	}
	for _, listed := range list {
		s.archives[listed.Origin] = append(s.archives[listed.Origin], Open(dir).Log(listed.Number))
	}
	return nil
}

// bundle reads a bundle, and gives its log.
func (s *Source) bundle(index, number int64, width int) (Log, []byte, error) {
	l := s.logAt(index)
	data, err := l.Bundle(number, width)
	if !errors.Is(err, ErrArchived) {
		return l, data, err
	}
	for _, g := range s.generations {
		if g.Base != index/apart*apart {
			continue
		}
		for _, archive := range s.archives[g.Origin] {
			if data, err := archive.Bundle(number, width); err == nil {
				return archive, data, nil
			}
		}
	}
	return l, nil, err
}

// Records implements [Trail]. An entry in an absent archive is an error, or is passed
// over. A lost long record gives its digest.
func (s *Source) Records(ctx context.Context, from, to int64, handle func(index int64, record []byte) error) error {
	base := from / apart * apart
	for n := from - base; n < to-base && ctx.Err() == nil; {
		number := n / proof.TileWidth
		width := int(min(to-base-number*proof.TileWidth, proof.TileWidth))
		l, data, err := s.bundle(from, number, width)
		if s.passArchived && errors.Is(err, ErrArchived) {
			n = number*proof.TileWidth + int64(width)
			continue
		}
		if err != nil {
			return err
		}
		at := number * proof.TileWidth
		for leaf, err := range proof.Bundle(data) {
			if err != nil {
				return err
			}
			if at >= n && len(leaf) > 0 {
				if err := handle(base+at, l.whole(leaf)); err != nil {
					return err
				}
			}
			at++
		}
		n = at
	}
	return ctx.Err()
}

// whole is the record of a leaf.
func (l Log) whole(leaf []byte) []byte {
	if d, long := proof.ParseDigest(leaf); long {
		if record, err := l.Record(d); err == nil {
			return record
		}
	}
	return leaf
}
