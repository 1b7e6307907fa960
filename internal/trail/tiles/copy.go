package tiles

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/auditrelay/auditrelay/internal/store/durable"
	"github.com/auditrelay/auditrelay/internal/trail/audit"
	"github.com/auditrelay/auditrelay/internal/trail/proof"
)

// copying is a log that is copied to another folder. A [writer] writes the copy, from the files as
// from a trail: so what is published there is proven by the signed root.
type copying struct {
	from      Log
	upTo      proof.Checkpoint // a signed one of the log
	publicKey string

	to    Log
	wrote func(entries int64) // nil, or told of the progress
}

// run brings the copy up to the checkpoint: see [writer.write] for a crash. With fromFirst, it goes
// through all of an older copy.
func (m *copying) run(ctx context.Context, fromFirst bool) error {
	if err := m.continues(); err != nil {
		return err
	}
	g := audit.Generation{Base: proof.BaseOf(m.upTo.Origin), Origin: m.upTo.Origin, PublicKey: m.publicKey}
	w, err := openWriter(m.to, g, m.records, fromFirst)
	if err != nil {
		return err
	}
	w.whole = true
	if err := m.checkpoints(func(c audit.Kept) error { return w.add(ctx, c) }); err != nil {
		return err
	}
	if err := w.write(ctx); err != nil {
		return err
	}
	if w.written.Root() != m.upTo.Root {
		return fmt.Errorf("%w: %s lacks the checkpoint of %d entries", errDamaged, m.from.path(proof.HistoryFile), m.upTo.Size)
	}
	if m.wrote != nil {
		m.wrote(m.upTo.Size)
	}
	return nil
}

// continues refuses to replace an older copy in the folder that the checkpoint does not continue.
func (m *copying) continues() error {
	there, err := m.to.signed(m.publicKey)
	if err != nil || there.Size == 0 {
		return nil //nolint:nilerr // there is none, or a damaged one, which is written again
	}
	c := m.upTo
	if there.Size > c.Size {
		return fmt.Errorf("%s has %d entries, and this log only %d: the log was put back to an earlier state, or the folder is of another one", m.to.dir, there.Size, c.Size)
	}
	root, err := tlog.TreeHash(there.Size, tlog.TileHashReader(tlog.Tree{N: c.Size, Hash: c.Root}, proof.TileReader(m.from.Tile)))
	if err == nil && root != there.Root {
		err = fmt.Errorf("%s has another history than this log", m.to.dir)
	}
	return err
}

// checkpoints gives those of the history, up to the one to copy, with the leaf hashes that each
// adds, as the tiles have them: where one is lost, the entries decide.
func (m *copying) checkpoints(handle func(audit.Kept) error) error {
	size := int64(0)
	return m.from.eachLine(func(line proof.Line) error {
		c, err := proof.ReadCheckpoint([]byte(line.Checkpoint))
		if err != nil || c.Size > m.upTo.Size {
			return err
		}
		k := audit.Kept{Seq: line.Seq, PublicKey: line.Key, Note: line.Checkpoint, Size: c.Size, Root: c.Root, Leaves: m.leaves(size, c.Size)}
		size = c.Size
		return handle(k)
	})
}

// leaves are the leaf hashes in [from, to), as the tiles have them; none where a tile is lost. A size
// may be signed of which nothing is there.
func (m *copying) leaves(from, to int64) (leaves []tlog.Hash) {
	for from < to {
		n := from / proof.TileWidth
		end := min(to, (n+1)*proof.TileWidth)
		data, err := m.from.Tile(tile(0, n, int(end-n*proof.TileWidth)))
		if err != nil {
			return nil
		}
		leaves = append(leaves, proof.SplitHashes(data)[from-n*proof.TileWidth:]...)
		from = end
	}
	return leaves
}

// records gives the entries in [from, to), by index over all generations.
func (m *copying) records(ctx context.Context, from, to int64, handle func(index int64, record []byte) error) error {
	base := proof.BaseOf(m.upTo.Origin)
	for n := (from - base) / proof.TileWidth; base+n*proof.TileWidth < to; n++ {
		width := int(min(proof.TileWidth, m.upTo.Size-n*proof.TileWidth))
		data, err := m.from.Bundle(n, width)
		if err = errors.Join(err, ctx.Err()); err != nil {
			return err
		}
		leaves, _ := proof.Leaves(data) // what cannot be read is lost
		for i, record := range leaves {
			index, lost := base+n*proof.TileWidth+int64(i), error(nil)
			if d, long := proof.ParseDigest(record); long {
				record, lost = m.from.Record(d)
			}
			if lost != nil || index < from || index >= to {
				continue
			}
			if err := handle(index, record); err != nil {
				return err
			}
		}
		if m.wrote != nil {
			m.wrote(n*proof.TileWidth + int64(width))
		}
	}
	return nil
}

// output is a log whose files are written.
type output struct {
	Log

	files []durable.File
	bytes int
}

// file has a file written, unless it is there.
func (o *output) file(name string, data []byte) error {
	to := o.path(name)
	if there, err := durable.ReadFile(to); err == nil && bytes.Equal(there, data) {
		return nil
	}
	o.files = append(o.files, durable.File{Path: to, Data: bytes.Clone(data)})
	if o.bytes += len(data); o.bytes < flushBytes && len(o.files) < flushFiles {
		return nil
	}
	return o.flush()
}

func (o *output) flush() error {
	err := durable.WriteFiles(o.files)
	o.files, o.bytes = nil, 0
	return err
}
