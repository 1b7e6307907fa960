package tiles

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/auditrelay/auditrelay/internal/trail/audit"
	"github.com/auditrelay/auditrelay/internal/trail/proof"
)

// moving is one log on its way to an archive.
type moving struct {
	Log
	dir        string // of the archive
	generation audit.Generation
	size       int64
	tree       tlog.HashReader  // of the signed tree
	moved      []proof.Archived // before

	todo proof.Archived // its Size is 0 where nothing is to do
}

// plan finds the full bundles after those archived before that have nothing made at or after a
// time. It reports whether one has.
func (m *moving) plan(ctx context.Context, before time.Time) (ended bool, err error) {
	from := m.archivedEnd()
	m.todo = proof.Archived{Origin: m.generation.Origin, From: m.generation.Base + from, Where: m.dir, Before: before.UTC()}
	end := from
	for ; end+proof.TileWidth <= m.size; end += proof.TileWidth {
		if err := ctx.Err(); err != nil {
			return false, err
		}
		b, err := m.bundle(end / proof.TileWidth)
		if err != nil {
			return false, err
		}
		if ended = !b.newest.Before(before); ended {
			break
		}
		if !b.stays {
			m.todo.Files, m.todo.Bytes = m.todo.Files+len(b.files), m.todo.Bytes+b.bytes
		}
	}
	if end == from {
		return ended, nil
	}
	m.todo.To, m.todo.Size = m.generation.Base+end-1, end
	if m.todo.Root, err = tlog.TreeHash(end, m.tree); err != nil {
		return false, fmt.Errorf("compute the root of %d entries: %w", end, err)
	}
	return ended, nil
}

// old is a full bundle with its long records.
type old struct {
	files  []string
	bytes  int64
	newest time.Time // of its entries
	stays  bool
}

// bundle reads a bundle. It is held against the signed tree before anything is moved: see [Log.Check].
func (m *moving) bundle(n int64) (old, error) {
	data, err := m.Bundle(n, proof.TileWidth)
	if err != nil {
		return old{}, err
	}
	name := proof.BundlePath(n, proof.TileWidth)
	b := old{files: []string{m.path(name)}, bytes: int64(len(data))}
	leaves, err := proof.Leaves(data)
	if err != nil {
		return old{}, fmt.Errorf("%s: %w", name, err)
	}
	for i, leaf := range leaves {
		record := leaf
		if d, long := proof.ParseDigest(leaf); long {
			if record, err = m.Record(d); err != nil {
				return old{}, err
			}
			b.files, b.bytes = append(b.files, m.path(d.Path())), b.bytes+d.Bytes
		}
		at, about, err := age(record)
		if err != nil {
			return old{}, fmt.Errorf("%s, entry %d: %w; start the relay again: it mends its files", name, i, err)
		}
		if at.After(b.newest) {
			b.newest = at
		}
		b.stays = b.stays || about
	}
	return b, nil
}

// move does the steps after the copy for one log.
func (m *moving) move(ctx context.Context, enter func(context.Context, proof.Archived) error) error {
	if m.todo.Size > 0 {
		if err := enter(ctx, m.todo); err != nil {
			return fmt.Errorf("enter the archive into the trail: %w", err)
		}
		// After a crash before this line, the next run enters the same archive once more,
		// unless it sees the entry.
		if err := m.mark(m.todo); err != nil {
			return err
		}
	}
	return m.removeMoved(ctx)
}

// removeMoved removes the bundles that the archive has, with the long records of their entries: a salt
// tells each record from all others.
func (m *moving) removeMoved(ctx context.Context) error {
	var gone []string
	for n, end := int64(0), min(m.archivedEnd(), m.size); (n+1)*proof.TileWidth <= end; n++ {
		if err := ctx.Err(); err != nil {
			return err
		}
		b, err := m.bundle(n)
		switch {
		case errors.Is(err, ErrArchived):
		case err != nil:
			return err
		case !b.stays:
			gone = append(gone, b.files...)
		}
	}
	return remove(gone)
}
