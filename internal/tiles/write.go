package tiles

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"strconv"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/auditrelay/auditrelay/internal/audit"
	"github.com/auditrelay/auditrelay/internal/durable"
	"github.com/auditrelay/auditrelay/internal/proof"
)

// errUnproven marks a checkpoint whose root is given neither by the kept hashes nor by the
// entries.
var errUnproven = errors.New("neither the entries nor the kept hashes give the signed root")

// errDamaged marks a file unlike the signed tree: the log is gone through anew.
var errDamaged = errors.New("a file of the trail's log is damaged")

const (
	// batchLeaves bounds the entries of one step, and so the proven hashes in memory: 2 MB.
	batchLeaves = 1 << 16
	batchLines  = 1 << 12 // and the checkpoints
	// flushBytes and flushFiles bound the files in memory, except for one bundle: 16 MB.
	flushBytes = 8 << 20
	flushFiles = 512
)

// writer writes one generation's log. It belongs to one goroutine.
type writer struct {
	Log
	base    int64 // index of the generation's first entry
	records func(ctx context.Context, from, to int64, handle func(index int64, record []byte) error) error

	written *edge  // of the tiles on the disk
	from    uint64 // the number of the checkpoint to go on with
	seq     uint64 // the newest one's in the history
	least   int64  // size of the checkpoint found at the start: no smaller one replaces it

	// The step in hand.
	proven *edge       // behind leaves
	leaves []tlog.Hash // of [written.n, proven.n)
	lines  []Line      // of their checkpoints

	lost int64 // entries that neither the trail nor the log has, written as empty ones
}

// openWriter goes on with a log as far as its newest checkpoint is good and its tiles give
// the root; else, or with anew, it goes through it from the first entry. Files that are
// right stay, and the checkpoint stays until a larger tree is written.
func openWriter(l Log, g audit.Generation, trail Trail, anew bool) (*writer, error) {
	w := &writer{Log: l, base: g.Base, records: trail.Records, written: &edge{}}
	if err := durable.MakeDir(l.dir); err != nil {
		return nil, err
	}
	if anew && l.checkHistory(g.PublicKey) != nil {
		// Behind a crash here, the history is empty, and the log is gone through anew.
		if err := os.Remove(l.path(HistoryFile)); err != nil {
			return nil, fmt.Errorf("make history of checkpoints anew: %w", err)
		}
	}
	last, err := l.lastLine(true)
	if err != nil {
		return nil, err
	}
	w.seq = last.Seq
	if c, err := l.signed(g.PublicKey); err == nil {
		w.least = c.Size
		if e, err := l.edge(c); err == nil && !anew && w.seq > 0 {
			w.written, w.from = e, w.seq
		}
	}
	w.reset()
	return w, nil
}

// signed gives the newest checkpoint, with a good signature.
func (l Log) signed(publicKey string) (proof.Checkpoint, error) {
	text, c, err := l.Checkpoint()
	if err != nil {
		return c, err
	}
	verifier, err := note.NewVerifier(publicKey)
	if err != nil {
		return c, fmt.Errorf("check checkpoint: %w", err)
	}
	if _, err := note.Open(text, note.VerifierList(verifier)); err != nil {
		return c, fmt.Errorf("check checkpoint: %w", err)
	}
	if c.Origin != verifier.Name() {
		return c, fmt.Errorf("check checkpoint: its origin is not %q", verifier.Name())
	}
	return c, nil
}

// edge reads the tree's edge from the tiles, and proves it with the checkpoint.
func (l Log) edge(c proof.Checkpoint) (*edge, error) {
	e := &edge{n: c.Size}
	for _, t := range edgeTiles(c.Size) {
		data, err := l.Tile(t)
		if err != nil {
			return nil, err
		}
		for len(e.levels) < t.L {
			e.levels = append(e.levels, nil)
		}
		e.levels = append(e.levels, hashesOf(data, t.W))
	}
	if e.root() != c.Root {
		return nil, fmt.Errorf("check tiles: %w", errUnproven)
	}
	return e, nil
}

// reset forgets the step in hand.
func (w *writer) reset() {
	w.proven, w.leaves, w.lines = w.written.grown(), nil, nil
}

// add takes a checkpoint into the step in hand, with the leaf hashes it proves.
func (w *writer) add(ctx context.Context, c audit.Kept) error {
	if c.Size < w.proven.n {
		return nil // an older one, read again
	}
	leaves, err := w.prove(ctx, c)
	if err != nil {
		return err
	}
	w.leaves = append(w.leaves, leaves...)
	w.lines = append(w.lines, Line{c.Seq, c.PublicKey, c.Note})
	if len(w.leaves) < batchLeaves && len(w.lines) < batchLines {
		return nil
	}
	return w.write(ctx)
}

// prove finds the leaf hashes between the proven tree and c's root: those kept with c, or
// where they are damaged those of the entries.
func (w *writer) prove(ctx context.Context, c audit.Kept) ([]tlog.Hash, error) {
	if from := c.Size - int64(len(c.Leaves)); from <= w.proven.n {
		leaves := c.Leaves[w.proven.n-from:]
		if next := w.proven.grown(leaves...); next.root() == c.Root {
			w.proven = next
			return leaves, nil
		}
	}
	next, from := w.proven.grown(), w.proven.n
	leaves := make([]tlog.Hash, 0, min(c.Size-from, batchLeaves))
	err := w.records(ctx, w.base+from, w.base+c.Size, func(index int64, record []byte) error {
		if index == w.base+next.n {
			leaves = append(leaves, proof.LeafHash(record))
			next.grow(leaves[len(leaves)-1], nil)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if next.n != c.Size || next.root() != c.Root {
		return nil, fmt.Errorf("checkpoint %d, of %d entries: %w", c.Seq, c.Size, errUnproven)
	}
	w.proven = next
	return leaves, nil
}

// write writes the step in hand: first the tiles, the bundles and long records, then the
// history, then the checkpoint, each durable before the next. So a crash at any line
// leaves a checkpoint with all its tiles; the next start writes the rest again. Partial
// tiles are removed last: the new checkpoint needs none of the old ones, and a reader with an older
// one is served from the wider.
func (w *writer) write(ctx context.Context) error {
	if len(w.lines) == 0 {
		return nil
	}
	s := &step{writer: w, edge: w.written.grown()}
	if err := s.begin(); err != nil {
		return err
	}
	end := w.proven.n
	err := w.records(ctx, w.base+w.written.n, w.base+end, func(index int64, record []byte) error {
		if err := s.fill(min(index-w.base, end)); err != nil || s.edge.n != index-w.base {
			return err
		}
		return s.put(record)
	})
	if err == nil {
		err = s.fill(end)
	}
	if err == nil {
		err = s.finish()
	}
	if err == nil {
		err = w.publish()
	}
	if err != nil {
		return err
	}
	s.removePartials()
	w.written, w.lost, w.from = w.proven, w.lost+s.lost, w.lines[len(w.lines)-1].Seq
	w.reset()
	return nil
}

// publish makes the newest checkpoint of the step the log's.
func (w *writer) publish() error {
	var fresh []Line
	for _, line := range w.lines {
		if line.Seq > w.seq {
			fresh = append(fresh, line)
		}
	}
	// Behind this line, a crash leaves a history ahead of the checkpoint; the next
	// start reads its last line's checkpoint again.
	if err := w.addLines(fresh); err != nil {
		return err
	}
	newest := w.lines[len(w.lines)-1]
	w.seq = max(w.seq, newest.Seq)
	if w.proven.n < w.least {
		return nil
	}
	return durable.WriteFile(w.path(CheckpointFile), []byte(newest.Checkpoint))
}

// step is the writing of some entries.
type step struct {
	*writer
	edge   *edge  // behind the newest entry
	bundle []byte // of its last, partial bundle
	files  []durable.File
	bytes  int
	lost   int64
}

// begin reads the partial bundle. errDamaged says it is not what the tiles say.
func (s *step) begin() error {
	width := int(s.edge.n % proof.TileWidth)
	if width == 0 {
		return nil
	}
	old, err := s.Bundle(s.edge.n/proof.TileWidth, width)
	if err != nil {
		return fmt.Errorf("%w: %w", errDamaged, err)
	}
	i := 0
	for leaf, err := range proof.Bundle(old) {
		if err != nil {
			return fmt.Errorf("%w: %w", errDamaged, err)
		}
		if len(leaf) > 0 && tlog.RecordHash(leaf) != s.edge.levels[0][i] { // an empty one is a lost entry
			return fmt.Errorf("%w: entry %d of %s", errDamaged, i, proof.BundlePath(s.edge.n/proof.TileWidth, width))
		}
		i++
	}
	s.bundle = bytes.Clone(old)
	return nil
}

// put adds the next entry, if the record is the signed one.
func (s *step) put(record []byte) error {
	leaf := proof.LeafData(record)
	if tlog.RecordHash(leaf) != s.leaves[s.edge.n-s.written.n] {
		return s.restore()
	}
	if d, long := proof.ParseDigest(leaf); long && len(record) > proof.MaxLeaf {
		if err := s.file(d.Path(), record); err != nil {
			return err
		}
	}
	return s.leaf(leaf)
}

// fill adds the entries before n that the trail has lost.
func (s *step) fill(n int64) error {
	for s.edge.n < n {
		if err := s.restore(); err != nil {
			return err
		}
	}
	return nil
}

// restore adds the next entry from the log's own bundle, or as the lost entry that was
// signed; else as an empty one, which proves nothing.
func (s *step) restore() error {
	n := s.edge.n
	want := s.leaves[n-s.written.n]
	if leaf := proof.LostLeaf(s.base + n); tlog.RecordHash(leaf) == want {
		return s.leaf(leaf)
	}
	leaf, err := s.entry(n)
	if err != nil || tlog.RecordHash(leaf) != want {
		s.lost++
		leaf = nil
	}
	return s.leaf(leaf)
}

// entry reads an entry's leaf from its bundle. Nothing vouches for it.
func (l Log) entry(n int64) ([]byte, error) {
	width := int(n%proof.TileWidth) + 1
	data, err := l.Bundle(n/proof.TileWidth, width)
	if err != nil {
		return nil, err
	}
	var last []byte
	for leaf, err := range proof.Bundle(data) {
		if err != nil {
			return nil, err
		}
		last = leaf
	}
	return last, nil
}

// leaf adds the leaf of the next entry, and writes what it completes.
func (s *step) leaf(data []byte) error {
	s.bundle = proof.AppendBundle(s.bundle, data)
	n := s.edge.n
	var failed error
	s.edge.grow(s.leaves[n-s.written.n], func(t tlog.Tile, hashes []tlog.Hash) {
		failed = errors.Join(failed, s.file(pathOf(t), joined(hashes)))
	})
	if s.edge.n%proof.TileWidth == 0 {
		failed = errors.Join(failed, s.file(proof.BundlePath(n/proof.TileWidth, proof.TileWidth), s.bundle))
		s.bundle = nil
	}
	return failed
}

// file has a file written, unless it is there.
func (s *step) file(name string, data []byte) error {
	to := s.path(name)
	if there, err := os.ReadFile(to); err == nil && bytes.Equal(there, data) {
		return nil
	}
	s.files = append(s.files, durable.File{Path: to, Data: bytes.Clone(data)})
	if s.bytes += len(data); s.bytes < flushBytes && len(s.files) < flushFiles {
		return nil
	}
	return s.flush()
}

func (s *step) flush() error {
	err := durable.WriteFiles(s.files)
	s.files, s.bytes = nil, 0
	return err
}

// finish writes the partial tiles, and waits until all of it is durable.
func (s *step) finish() error {
	n := s.edge.n
	for _, t := range edgeTiles(n) {
		if err := s.file(pathOf(t), joined(s.edge.levels[t.L])); err != nil {
			return err
		}
	}
	if len(s.bundle) > 0 {
		if err := s.file(proof.BundlePath(n/proof.TileWidth, int(n%proof.TileWidth)), s.bundle); err != nil {
			return err
		}
	}
	return s.flush()
}

// removePartials removes the narrower files of tiles that have a wider one now, and what
// an earlier tree left there. One left by a crash does no harm.
func (s *step) removePartials() {
	now := map[tlog.Tile]int{} // the width of each partial tile
	for _, t := range withBundle(s.written.n) {
		now[wide(t)] = 0
	}
	for _, t := range withBundle(s.proven.n) {
		now[wide(t)] = t.W
	}
	for full, width := range now {
		widths, err := s.widths(full)
		if err != nil {
			continue
		}
		for _, w := range widths {
			if w != width {
				_ = os.Remove(s.path(path.Join(pathOf(full)+".p", strconv.Itoa(w))))
			}
		}
		if width == 0 {
			_ = os.Remove(s.path(pathOf(full) + ".p"))
		}
	}
}

// withBundle are the partial tiles of a tree of n leaves, its partial bundle too.
func withBundle(n int64) []tlog.Tile {
	tiles := edgeTiles(n)
	if width := int(n % proof.TileWidth); width > 0 {
		tiles = append(tiles, bundle(n/proof.TileWidth, width))
	}
	return tiles
}

func wide(t tlog.Tile) tlog.Tile {
	t.W = proof.TileWidth
	return t
}
