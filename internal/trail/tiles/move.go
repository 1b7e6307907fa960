package tiles

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"slices"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/auditrelay/auditrelay/internal/store/durable"
	"github.com/auditrelay/auditrelay/internal/trail/audit"
	"github.com/auditrelay/auditrelay/internal/trail/proof"
)

// moving is one log on its way to an archive.
type moving struct {
	Log
	number     int
	dir        string // of the archive
	generation audit.Generation
	size       int64
	tree       tlog.HashReader  // of the signed tree
	moved      []proof.Archived // before

	todo  proof.Archived // its Size is 0 where nothing is to do
	ended bool           // younger entries follow
}

// plan finds the full bundles after those archived before that have nothing made at or after a
// time.
func (m *moving) plan(ctx context.Context, before time.Time) error {
	from := m.archivedEnd()
	m.todo = proof.Archived{Origin: m.generation.Origin, From: m.generation.Base + from, Where: m.dir, Before: before.UTC()}
	end := from
	for ; end+proof.TileWidth <= m.size; end += proof.TileWidth {
		if err := ctx.Err(); err != nil {
			return err
		}
		b, err := m.bundle(end / proof.TileWidth)
		if err != nil {
			return err
		}
		if !b.newest.Before(before) {
			m.ended = true
			break
		}
		if !b.stays {
			m.todo.Files, m.todo.Bytes = m.todo.Files+len(b.files), m.todo.Bytes+b.bytes
		}
	}
	if end == from {
		return nil
	}
	root, err := tlog.TreeHash(end, m.tree)
	if err != nil {
		return fmt.Errorf("compute the root of %d entries: %w", end, err)
	}
	m.todo.To, m.todo.Size, m.todo.Root = m.generation.Base+end-1, end, root
	return nil
}

// old is a full bundle with its long records.
type old struct {
	files  []string
	bytes  int64
	newest time.Time // of its entries
	stays  bool
}

// bundle reads a bundle, and holds it against the signed tree.
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
	var tree proof.Edge
	for i, leaf := range leaves {
		tree.Add(tlog.RecordHash(leaf))
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
	signed, err := m.tree.ReadHashes([]int64{tlog.StoredHashIndex(proof.TileHeight, n)})
	if err == nil && signed[0] != tree.Root() {
		err = fmt.Errorf("%s is unlike the signed tree; start the relay again: it mends its files", name)
	}
	return b, err
}

// move does the four steps for one log.
func (m *moving) move(ctx context.Context, a *Archiver, plan []proof.Archived) error {
	at := slices.IndexFunc(plan, func(p proof.Archived) bool { return p.Origin == m.generation.Origin })
	if at >= 0 {
		m.todo = plan[at]
	}
	if at < 0 && !slices.ContainsFunc(m.moved, func(p proof.Archived) bool { return p.Where == m.dir }) {
		return nil
	}
	if err := m.copy(ctx, a); err != nil {
		return err
	}
	if at >= 0 {
		if err := a.Enter(ctx, m.todo); err != nil {
			return fmt.Errorf("enter the archive into the trail: %w", err)
		}
		// After a crash before this line, the next run enters the same archive once more,
		// unless it sees the entry.
		if err := m.mark(m.todo); err != nil {
			return err
		}
		m.moved = append(m.moved, m.todo)
	}
	return m.removeMoved(ctx)
}

// copy brings the archive up to the first checkpoint over the entries, and reads all of
// it back. It mends nothing there: somebody may have tampered with a damaged file.
func (m *moving) copy(ctx context.Context, a *Archiver) error {
	to := Open(m.dir).Log(m.number)
	_, there, err := to.Checkpoint()
	if err == nil {
		if err := to.Check(ctx, m.generation.PublicKey, 0); err != nil {
			return fmt.Errorf("the archive %s is damaged, and nothing was moved: %w", to.dir, err)
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	c, err := m.covering(max(m.todo.Size, there.Size))
	if err != nil {
		return err
	}
	if err := m.markElsewhere(to); err != nil {
		return err
	}
	copying := copying{from: m.Log, upTo: c, publicKey: m.generation.PublicKey, passArchived: true, to: to}
	if a.Progress != nil {
		copying.wrote = func(entries int64) { a.Progress(entries, c.Size) }
	}
	if err := copying.run(ctx, false); err != nil {
		return fmt.Errorf("copy to %s: %w", to.dir, err)
	}
	if err := to.Check(ctx, m.generation.PublicKey, 0); err != nil {
		return fmt.Errorf("read the archive %s back: %w", to.dir, err)
	}
	return nil
}

// covering is the first checkpoint over n entries.
func (m *moving) covering(n int64) (found proof.Checkpoint, err error) {
	found.Size = math.MaxInt64
	err = m.eachLine(func(line proof.Line) error {
		if line.Key != m.generation.PublicKey {
			return errors.New("its files name another key than the trail")
		}
		c, err := proof.ReadCheckpoint([]byte(line.Checkpoint))
		if err == nil && c.Size >= n && c.Size < found.Size {
			found = c
		}
		return err
	})
	if err == nil && found.Size > m.size {
		err = fmt.Errorf("no checkpoint of this trail covers the %d entries in the archive: the data directory was put back to an earlier state", n)
	}
	return found, err
}

// markElsewhere notes in the archive the entries of other archives.
func (m *moving) markElsewhere(to Log) error {
	for _, p := range m.moved {
		if p.Where == m.dir {
			continue
		}
		if err := durable.MakeDir(to.dir); err != nil {
			return err
		}
		if err := to.mark(p); err != nil {
			return err
		}
	}
	return nil
}

// removeMoved removes the bundles copied to this archive. Long records go with them,
// unless a remaining entry has the same one.
func (m *moving) removeMoved(ctx context.Context) error {
	var gone []string
	kept := map[string]bool{}
	for n := int64(0); (n+1)*proof.TileWidth <= m.size; n++ {
		if err := ctx.Err(); err != nil {
			return err
		}
		b, err := m.bundle(n)
		switch {
		case errors.Is(err, ErrArchived):
		case err != nil:
			return err
		case b.stays || !m.isHere(n*proof.TileWidth):
			for _, file := range b.files[1:] {
				kept[file] = true
			}
		default:
			gone = append(gone, b.files...)
		}
	}
	return remove(slices.DeleteFunc(gone, func(file string) bool { return kept[file] }))
}

// isHere reports whether leaf n is in this archive.
func (m *moving) isHere(n int64) bool {
	index := m.generation.Base + n
	return slices.ContainsFunc(m.moved, func(p proof.Archived) bool { return p.Where == m.dir && p.From <= index && index <= p.To })
}
