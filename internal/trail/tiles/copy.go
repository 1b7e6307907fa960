package tiles

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/auditrelay/auditrelay/internal/store/durable"
	"github.com/auditrelay/auditrelay/internal/trail/proof"
)

// copying is a log that is copied to another folder.
type copying struct {
	from, to  Log
	note      []byte
	upTo      proof.Checkpoint // in note
	publicKey string
	wrote     func(entries int64) // told of the progress
}

// export brings a copy up to date: the tiles and the entries, then the history, then the checkpoint,
// each durable before the next. What is there, and right, stays: after a crash the next run goes on.
// Nothing is copied from damaged files, and in the end all of the copy is read back.
func (m *copying) export(ctx context.Context) error {
	before, err := m.continues()
	if err == nil {
		err = m.from.Check(ctx, m.publicKey, 0)
	}
	if err == nil {
		err = m.copyTiles(ctx)
	}
	if err == nil {
		err = durable.Replace(m.to.path(proof.HistoryFile), m.copyHistory)
	}
	if err == nil {
		err = durable.WriteFile(m.to.path(proof.CheckpointFile), m.note)
	}
	if err != nil {
		return err
	}
	m.to.removePartials(before, m.upTo.Size)
	return m.to.Check(ctx, m.publicKey, 0)
}

// continues refuses to replace an older copy in the folder that the checkpoint does not continue. It
// returns the size of that copy.
func (m *copying) continues() (size int64, err error) {
	_, there, err := m.to.signed(m.publicKey)
	if err != nil || there.Size == 0 {
		return 0, nil //nolint:nilerr // there is none, or a damaged one, which is written again
	}
	c := m.upTo
	if there.Size > c.Size {
		return 0, fmt.Errorf("%s has %d entries, and this log only %d: the log was put back to an earlier state, or the folder is of another one", m.to.dir, there.Size, c.Size)
	}
	root, err := tlog.TreeHash(there.Size, m.from.tree(c.Size, c.Root))
	if err == nil && root != there.Root {
		err = fmt.Errorf("%s has another history than this log", m.to.dir)
	}
	return there.Size, err
}

// copyTiles copies the tiles, and the bundles with the long records of their entries.
func (m *copying) copyTiles(ctx context.Context) error {
	out := output{Log: m.to}
	for _, t := range tlog.NewTiles(proof.TileHeight, 0, m.upTo.Size) {
		data, err := m.from.Tile(t)
		if err == nil {
			err = out.file(proof.TilePath(t), data)
		}
		if err == nil && t.L == 0 {
			err = m.copyBundle(&out, bundle(t.N, t.W))
			m.wrote(t.N*proof.TileWidth + int64(t.W))
		}
		if err = errors.Join(err, ctx.Err()); err != nil {
			return err
		}
	}
	return out.flush()
}

// copyBundle copies a bundle. One that was moved to an archive has to be there.
func (m *copying) copyBundle(out *output, t tlog.Tile) error {
	data, err := m.from.Bundle(t.N, t.W)
	if errors.Is(err, ErrArchived) {
		if _, there := m.to.Bundle(t.N, t.W); there == nil {
			err = nil
		}
		return err
	}
	leaves, torn := proof.Leaves(data)
	if err = errors.Join(err, torn); err != nil {
		return err
	}
	for _, leaf := range leaves {
		if d, long := proof.ParseDigest(leaf); long {
			record, err := m.from.Record(d)
			if err == nil {
				err = out.file(d.Path(), record)
			}
			if err != nil {
				return err
			}
		}
	}
	return out.file(proof.TilePath(t), data)
}

// copyHistory copies the history up to the checkpoint's size. The log may have grown meanwhile.
func (m *copying) copyHistory(w io.Writer) error {
	return m.from.eachText(func(_ int, text []byte) error {
		line, err := proof.ParseLine(text)
		if err != nil {
			return err
		}
		c, err := proof.ReadCheckpoint([]byte(line.Checkpoint))
		if err == nil && c.Size <= m.upTo.Size {
			_, err = w.Write(text)
		}
		return err
	})
}

// output is a log whose files are written.
type output struct {
	Log

	files []durable.File
	bytes int
}

// file has a file written, unless it is there.
func (o *output) file(name string, data []byte) error {
	if there, err := o.read(name); err == nil && bytes.Equal(there, data) {
		return nil
	}
	o.files = append(o.files, durable.File{Path: o.path(name), Data: bytes.Clone(data)})
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
