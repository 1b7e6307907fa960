package tiles

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/auditrelay/auditrelay/internal/store/durable"
	"github.com/auditrelay/auditrelay/internal/trail/proof"
)

// copying is a log that is copied to another folder. Its entries are copied, and the tree is
// computed from them, so that what is published there is proven by the signed root.
type copying struct {
	from      Log
	upTo      proof.Checkpoint // a signed one of the log
	publicKey string
	archives  []Log // where archived bundles are, too
	// passArchived: bundles that are in other archives are left out.
	passArchived bool

	to    output
	wrote func(entries int64) // nil, or told of the progress
}

// run brings the copy up to the checkpoint. The tiles, the bundles and the records are
// durable before the history is, and the history before the checkpoint: a crash at any line
// leaves the copy's older checkpoint with all of its files, and the next run goes on.
func (m *copying) run(ctx context.Context) error {
	before, err := m.continues()
	if err != nil {
		return err
	}
	if err := durable.MakeDir(m.to.dir); err != nil {
		return err
	}
	err = walk(m.upTo, func(n int64, width int) ([]tlog.Hash, error) {
		leaves, err := m.bundle(n, width)
		if m.wrote != nil {
			m.wrote(n*proof.TileWidth + int64(width))
		}
		return leaves, errors.Join(err, ctx.Err())
	}, func(t tlog.Tile, hashes []tlog.Hash) error { return m.to.file(pathOf(t), joined(hashes)) })
	if err == nil {
		err = m.to.flush()
	}
	if err == nil {
		err = m.publish()
	}
	if err == nil {
		m.to.removePartials(before, m.upTo.Size)
	}
	return err
}

// continues gives the size of an older copy in the folder, and refuses one that
// the checkpoint does not continue.
func (m *copying) continues() (size int64, err error) {
	there, err := m.to.signed(m.publicKey)
	if err != nil || there.Size == 0 {
		return 0, nil //nolint:nilerr // there is none, or a damaged one, which is written again
	}
	c := m.upTo
	if there.Size > c.Size {
		return 0, fmt.Errorf("%s has %d entries, and this log only %d: the log was put back to an earlier state, or the folder is of another one", m.to.dir, there.Size, c.Size)
	}
	root, err := tlog.TreeHash(there.Size, tlog.TileHashReader(tlog.Tree{N: c.Size, Hash: c.Root}, proof.TileReader(m.from.Tile)))
	if err == nil && root != there.Root {
		err = fmt.Errorf("%s has another history than this log", m.to.dir)
	}
	return there.Size, err
}

// bundle copies a bundle with its long records, and gives its leaf hashes.
func (m *copying) bundle(n int64, width int) ([]tlog.Hash, error) {
	l := m.from
	data, err := l.Bundle(n, width)
	for i := 0; errors.Is(err, ErrArchived) && i < len(m.archives); i++ {
		if found, failed := m.archives[i].Bundle(n, width); failed == nil {
			l, data, err = m.archives[i], found, nil
		}
	}
	if m.passArchived && errors.Is(err, ErrArchived) {
		return l.archivedLeaves(n, width)
	}
	if err != nil {
		return nil, err
	}
	leaves, err := l.leaves(data, func(d proof.Digest, record []byte) error { return m.to.file(d.Path(), record) })
	if err != nil {
		return nil, err
	}
	return leaves, m.to.file(proof.BundlePath(n, width), data)
}

// walk computes the tree of a checkpoint from the hashes of its leaves, which it takes bundle
// by bundle, and calls visit with each tile of the tree. errDamaged: they do not give the root.
func walk(c proof.Checkpoint, bundle func(n int64, width int) ([]tlog.Hash, error), visit func(t tlog.Tile, hashes []tlog.Hash) error) error {
	var err error
	take := func(t tlog.Tile, hashes []tlog.Hash) {
		if err == nil {
			err = visit(t, hashes)
		}
	}
	e := &edge{}
	for e.Len() < c.Size && err == nil {
		leaves, failed := bundle(e.Len()/proof.TileWidth, int(min(c.Size-e.Len(), proof.TileWidth)))
		if failed != nil {
			return failed
		}
		for _, leaf := range leaves {
			e.grow(leaf, take)
		}
	}
	if err != nil {
		return err
	}
	for _, t := range edgeTiles(c.Size) {
		take(t, e.levels[t.L])
	}
	if err == nil && e.Root() != c.Root {
		err = fmt.Errorf("%w: the entry bundles do not give the signed root", errDamaged)
	}
	return err
}

// leaves gives the leaf hashes of a bundle of the log, and has its long records visited.
// errDamaged: it is torn, or lacks a record.
func (l Log) leaves(bundle []byte, visit func(d proof.Digest, record []byte) error) (leaves []tlog.Hash, err error) {
	for leaf, err := range proof.Bundle(bundle) {
		if err != nil {
			return nil, fmt.Errorf("%w: %w", errDamaged, err)
		}
		leaves = append(leaves, tlog.RecordHash(leaf))
		d, long := proof.ParseDigest(leaf)
		if !long {
			continue
		}
		record, err := l.Record(d)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", errDamaged, err)
		}
		if err := visit(d, record); err != nil {
			return nil, err
		}
	}
	return leaves, nil
}

// archivedLeaves gives the leaf hashes of an archived bundle, as the tile has them.
func (l Log) archivedLeaves(n int64, width int) ([]tlog.Hash, error) {
	data, err := l.Tile(tile(0, n, width))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errDamaged, err)
	}
	return hashesOf(data, width), nil
}

// publish copies the history up to the checkpoint, and then the checkpoint itself.
func (m *copying) publish() error {
	if m.to.checkHistory(m.publicKey) != nil {
		// After a crash here, the history is empty, and is copied whole.
		if err := os.Remove(m.to.path(proof.HistoryFile)); err != nil {
			return fmt.Errorf("replace the history of checkpoints: %w", err)
		}
	}
	last, err := m.to.lastLine(true)
	if err != nil {
		return err
	}
	var lines []proof.Line
	c, newest := m.upTo, ""
	err = m.from.eachLine(func(line proof.Line) error {
		of, err := proof.ReadCheckpoint([]byte(line.Checkpoint))
		if err != nil || of.Size > c.Size {
			return err
		}
		if of.Size == c.Size && of.Root == c.Root {
			newest = line.Checkpoint
		}
		if line.Seq > last.Seq {
			lines = append(lines, line)
		}
		return nil
	})
	if err == nil && newest == "" {
		err = fmt.Errorf("%w: %s lacks the checkpoint of %d entries", errDamaged, m.from.path(proof.HistoryFile), c.Size)
	}
	if err == nil {
		err = m.to.addLines(lines)
	}
	if err != nil {
		return err
	}
	return durable.WriteFile(m.to.path(proof.CheckpointFile), []byte(newest))
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
	if there, err := os.ReadFile(to); err == nil && bytes.Equal(there, data) {
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
