package tiles

import (
	"context"
	"errors"
	"fmt"
	"math/bits"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/auditrelay/auditrelay/internal/store/durable"
	"github.com/auditrelay/auditrelay/internal/trail/audit"
	"github.com/auditrelay/auditrelay/internal/trail/proof"
)

// errUnproven marks a checkpoint whose root the leaves of the trail do not give.
var errUnproven = errors.New("the hashes that the trail knows do not give the signed root")

// errDamaged marks a file unlike the signed tree: the log is written again from the first entry.
var errDamaged = errors.New("a file of the trail's log is damaged")

const (
	// batchLeaves bounds the entries of one step, and so the new hashes in memory: 2 MB.
	batchLeaves = 1 << 16
	batchLines  = 1 << 12 // and the checkpoints
	// flushBytes and flushFiles bound the files in memory, except for one bundle: 16 MB.
	flushBytes = 8 << 20
	flushFiles = 512
)

// writer writes one generation's log. It belongs to one goroutine.
type writer struct {
	Log
	base  int64  // index of the generation's first entry
	key   string // its public key
	trail Trail

	written proof.Edge // of the tree whose tiles are on the disk
	from    uint64     // the number of the checkpoint to go on with
	seq     uint64     // the newest one's in the history
	least   int64      // size of the checkpoint found at the start: no smaller one replaces it
	moved   int64      // entries, from the first one on, in archives: their bundles are not written again

	// The step in hand.
	proven proof.Edge   // of the newest proven tree, which continues the written one
	leaves []tlog.Hash  // of the entries between the two
	lines  []proof.Line // of the checkpoints between the two

	lost     int64 // entries missing from the trail and the log, written as empty ones
	unproven bool  // the checkpoint before was passed over, and logged
}

// openWriter goes on with a log as far as its newest checkpoint is good and its tiles
// give the root; else, or with fromFirst, it goes through it from the first entry. Sound files
// stay, and the checkpoint stays until a larger tree is written.
func openWriter(l Log, g audit.Generation, trail Trail, fromFirst bool) (*writer, error) {
	w := &writer{Log: l, base: g.Base, key: g.PublicKey, trail: trail, moved: l.archivedEnd()}
	if err := durable.MakeDir(l.dir); err != nil {
		return nil, err
	}
	if fromFirst {
		if err := l.mend(g.PublicKey, nil); err != nil {
			return nil, err
		}
	}
	last, err := l.lastLine(true)
	if err != nil {
		return nil, err
	}
	w.seq = last.Seq
	if _, c, err := l.signed(g.PublicKey); err == nil {
		w.least = c.Size
		// The history is written before the checkpoint. One that ends before it is an older
		// copy, and the checkpoints that it lacks are added.
		known, lineErr := proof.ReadCheckpoint([]byte(last.Checkpoint))
		if !fromFirst && lineErr == nil && known.Size >= c.Size {
			if edge, err := l.edge(c); err == nil { // else the tiles do not give the root
				w.written, w.from = edge, w.seq
			}
		}
	}
	w.reset()
	return w, nil
}

// edge reads the edge of a checkpoint's tree from the tiles.
func (l Log) edge(c proof.Checkpoint) (proof.Edge, error) {
	var indexes []int64
	for level := bits.Len64(uint64(c.Size)) - 1; level >= 0; level-- {
		if n := c.Size >> level; n%2 == 1 {
			indexes = append(indexes, tlog.StoredHashIndex(level, n-1))
		}
	}
	if len(indexes) == 0 {
		return proof.Edge{}, nil
	}
	full, err := l.tree(c.Size, c.Root).ReadHashes(indexes)
	edge, _ := proof.EdgeOf(c.Size, full)
	return edge, err
}

// signed gives the newest checkpoint, with a good signature.
func (l Log) signed(publicKey string) (text []byte, c proof.Checkpoint, err error) {
	text, c, err = l.Checkpoint()
	if err != nil {
		return nil, c, err
	}
	if c, _, err = proof.OpenAs(publicKey, text); err != nil {
		return nil, c, fmt.Errorf("check checkpoint: %w", err)
	}
	return text, c, nil
}

// reset forgets the step in hand.
func (w *writer) reset() { w.proven, w.leaves, w.lines = w.written, nil, nil }

// tree reads hashes of the written tree.
func (w *writer) tree() tlog.HashReader { return w.Log.tree(w.written.Len(), w.written.Root()) }

// kept are the hashes of the written tree on a level of tiles, in a run, as its root proves them.
func (w *writer) kept(level int, from, to int64) ([]tlog.Hash, error) {
	if from == to {
		return nil, nil
	}
	var indexes []int64
	for n := from; n < to; n++ {
		indexes = append(indexes, tlog.StoredHashIndex(level*proof.TileHeight, n))
	}
	hashes, err := w.tree().ReadHashes(indexes)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errDamaged, err)
	}
	return hashes, nil
}

// add adds a checkpoint to the step in hand, with the hashes that it proves.
func (w *writer) add(ctx context.Context, c audit.Kept) error {
	if c.Size < w.proven.Len() {
		return nil // an older one, read again
	}
	if err := w.prove(ctx, &c); err != nil {
		return err
	}
	w.lines = append(w.lines, proof.Line{Seq: c.Seq, Key: c.PublicKey, Checkpoint: c.Note})
	if len(w.leaves) < batchLeaves && len(w.lines) < batchLines {
		return nil
	}
	return w.write(ctx)
}

// prove takes in the leaves up to a checkpoint, if they give its root.
func (w *writer) prove(ctx context.Context, c *audit.Kept) error {
	leaves, err := w.trail.Leaves(ctx, w.base+w.proven.Len(), w.base+c.Size)
	if err != nil {
		return err
	}
	grown := w.proven.With(leaves...)
	if grown.Len() != c.Size || grown.Root() != c.Root {
		return fmt.Errorf("checkpoint %d, of %d entries: %w", c.Seq, c.Size, errUnproven)
	}
	w.proven, w.leaves = grown, append(w.leaves, leaves...)
	return nil
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
	s := &step{writer: w, next: w.written.Len(), out: output{Log: w.Log}}
	if err := s.begin(); err != nil {
		return err
	}
	end := w.proven.Len()
	err := w.trail.Each(ctx, w.base+w.written.Len(), func(e audit.Recorded) error {
		n := e.Index - w.base
		if err := s.fill(min(n, end)); err != nil {
			return err
		}
		if n >= end {
			return errEnd
		}
		return s.put(e.Record)
	})
	if err == nil || errors.Is(err, errEnd) {
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
	s.removePartials(w.written.Len(), end)
	w.written, w.lost, w.from = w.proven, w.lost+s.lost, w.lines[len(w.lines)-1].Seq
	w.reset()
	return nil
}

// has reports whether the tiles give a checkpoint's root.
func (w *writer) has(c *audit.Kept) (bool, error) {
	if c.Size > w.written.Len() {
		return false, nil
	}
	root, err := tlog.TreeHash(c.Size, w.tree())
	if err != nil {
		err = fmt.Errorf("%w: %w", errDamaged, err)
	}
	return root == c.Root, err
}

// publish makes the newest checkpoint of the step the log's.
func (w *writer) publish() error {
	var fresh []proof.Line
	for _, line := range w.lines {
		if line.Seq > w.seq {
			fresh = append(fresh, line)
		}
	}
	// After this line, a crash leaves a history ahead of the checkpoint; the next
	// start reads its last line's checkpoint again.
	if err := w.addLines(fresh); err != nil {
		return err
	}
	newest := w.lines[len(w.lines)-1]
	w.seq = max(w.seq, newest.Seq)
	if w.proven.Len() < w.least {
		return nil
	}
	return durable.WriteFile(w.path(proof.CheckpointFile), []byte(newest.Checkpoint))
}
