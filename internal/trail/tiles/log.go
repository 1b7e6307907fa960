package tiles

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/auditrelay/auditrelay/internal/store/durable"
	"github.com/auditrelay/auditrelay/internal/trail/proof"
)

// Log is the folder of one generation. Its methods read the files only, and may be called
// concurrently, also while a keeper writes.
type Log struct{ dir string }

// Checkpoint gives the newest signed note, and the checkpoint in it. It checks no
// signature.
func (l Log) Checkpoint() (signed []byte, c proof.Checkpoint, err error) {
	if signed, err = l.read(proof.CheckpointFile); err != nil {
		return nil, c, fmt.Errorf("read checkpoint: %w", err)
	}
	c, err = proof.ReadCheckpoint(signed)
	return signed, c, err
}

// Tile gives the first W hashes of a tile, 32 bytes each. fs.ErrNotExist says it is not
// there, or narrower.
func (l Log) Tile(t tlog.Tile) ([]byte, error) {
	data, err := l.widest(t)
	if err != nil {
		return nil, err
	}
	if len(data) < t.W*tlog.HashSize {
		return nil, fmt.Errorf("read %s: it has %d bytes: %w", proof.TilePath(t), len(data), fs.ErrNotExist)
	}
	return data[:t.W*tlog.HashSize], nil
}

// Bundle gives the first width entries of the n-th entry bundle, likewise. ErrArchived
// means it was moved to an archive.
func (l Log) Bundle(n int64, width int) ([]byte, error) {
	data, err := l.widest(bundle(n, width))
	if err != nil {
		return nil, l.missing(n, err)
	}
	leaves, err := proof.Leaves(data)
	if len(leaves) < width {
		return nil, fmt.Errorf("read %s: it has %d entries: %w", proof.BundlePath(n, width), len(leaves), cmp.Or(err, fs.ErrNotExist))
	}
	end := 0
	for _, leaf := range leaves[:width] {
		end += 2 + len(leaf)
	}
	return data[:end], nil
}

// Record gives a long record by its digest, from the folder records.
func (l Log) Record(d proof.Digest) ([]byte, error) {
	record, err := l.read(d.Path())
	if err == nil && !d.Of(record) {
		err = fmt.Errorf("%s is damaged", d.Path())
	}
	if err != nil {
		return nil, fmt.Errorf("read record: %w", err)
	}
	return record, nil
}

// widest reads a tile's file: its own, which is the one that whoever verifies the log reads, or
// the full one, or another at least as wide as t.
func (l Log) widest(t tlog.Tile) (data []byte, err error) {
	read := func(width int) (there bool) {
		t.W = width
		data, err = l.read(proof.TilePath(t))
		return !errors.Is(err, fs.ErrNotExist)
	}
	least := t.W
	if read(least) || read(proof.TileWidth) {
		return data, err
	}
	for width := least + 1; width <= proof.TileWidth && !read(width); width++ { // whatever replaces one is wider
	}
	return data, err
}

// widths lists the partial files of a tile.
func (l Log) widths(t tlog.Tile) (widths []int) {
	files, _ := os.ReadDir(l.path(proof.TilePath(wide(t)) + ".p")) // mostly it is not there
	for _, f := range files {
		if width, err := strconv.Atoi(f.Name()); err == nil && width > 0 && width < proof.TileWidth {
			widths = append(widths, width)
		}
	}
	return widths
}

// tree reads hashes of a tree, whose root proves them.
func (l Log) tree(size int64, root tlog.Hash) tlog.HashReader {
	return tlog.TileHashReader(tlog.Tree{N: size, Hash: root}, proof.TileReader(l.Tile))
}

// maxFile bounds a file in memory: a bundle of the longest leaves has 16 MB, a record at most 32 MB. Whoever can
// write to an archive's folder may have put a larger one there.
const maxFile = 40 << 20

// read gives a whole file.
func (l Log) read(name string) ([]byte, error) {
	f, err := durable.Open(l.path(name))
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // it was only read
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if len(data) > maxFile {
		return nil, fmt.Errorf("%s has more than %d bytes, more than any file of a log", f.Name(), maxFile)
	}
	return data, err
}

func (l Log) path(name string) string { return filepath.Join(l.dir, filepath.FromSlash(name)) }

// bundle is an entry bundle, in the form of a tile with the level -1, as [tlog.Tile] has it.
func bundle(n int64, width int) tlog.Tile { return tile(-1, n, width) }

// MarkFile names the archives of a log, as a JSON list of [proof.Archived].
const MarkFile = "archived"

// HasArchived reports whether a folder is a store, or a log of one, with bundles that were moved to an
// archive. An archive, or an export, is none: it has all bundles.
func HasArchived(dir string) bool {
	below, _ := filepath.Glob(filepath.Join(dir, "*", MarkFile)) // of a bad pattern, nothing is known
	_, err := os.Stat(filepath.Join(dir, MarkFile))
	return err == nil || len(below) > 0
}

// ErrArchived marks an entry whose bundle was moved to an archive.
var ErrArchived = errors.New("it was archived")

// Archives lists the archives of the log. A lost mark is an empty list: the bundles are
// written again from the trail.
func (l Log) Archives() ([]proof.Archived, error) {
	text, err := l.read(MarkFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var list []proof.Archived
	if err == nil {
		err = json.Unmarshal(text, &list)
	}
	if err != nil {
		return nil, fmt.Errorf("read the list of archives %s: %w; without it the relay writes the archived bundles again", l.path(MarkFile), err)
	}
	return list, nil
}

// archivedEnd is the number of entries, from the first one on, in archives. A damaged mark
// counts as a lost one.
func (l Log) archivedEnd() (end int64) {
	list, _ := l.Archives()
	for _, a := range list {
		end = max(end, a.Size)
	}
	return end
}

// mark adds an archive to the list.
func (l Log) mark(a proof.Archived) error {
	list, err := l.Archives()
	if err != nil {
		return err
	}
	if slices.ContainsFunc(list, func(old proof.Archived) bool { return old.Size == a.Size && old.Where == a.Where }) {
		return nil
	}
	text, err := json.MarshalIndent(append(list, a), "", "  ")
	if err != nil {
		return fmt.Errorf("write the list of archives: %w", err)
	}
	return durable.WriteFile(l.path(MarkFile), append(text, '\n'))
}

// missing is the error for a missing bundle.
func (l Log) missing(n int64, err error) error {
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	list, _ := l.Archives()
	for _, a := range list {
		if n*proof.TileWidth < a.Size {
			return fmt.Errorf("%w: %w to %s: put its files back from there", err, ErrArchived, a.Where)
		}
	}
	return err
}
