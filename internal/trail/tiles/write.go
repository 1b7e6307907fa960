package tiles

import (
	"context"
	"errors"
	"fmt"
	"os"

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
	base  int64 // index of the generation's first entry
	trail Trail

	written *edge  // of the tiles on the disk
	from    uint64 // the number of the checkpoint to go on with
	seq     uint64 // the newest one's in the history
	least   int64  // size of the checkpoint found at the start: no smaller one replaces it
	moved   int64  // entries, from the first one on, in archives: their bundles are not written again

	// The step in hand.
	proven proof.Edge   // after leaves
	leaves []tlog.Hash  // of the entries between written and proven
	lines  []proof.Line // of their checkpoints

	lost     int64 // entries missing from the trail and the log, written as empty ones
	unproven bool  // a checkpoint that does not continue the log was logged
}

// openWriter goes on with a log as far as its newest checkpoint is good and its tiles
// give the root; else, or with fromFirst, it goes through it from the first entry. Sound files
// stay, and the checkpoint stays until a larger tree is written.
func openWriter(l Log, g audit.Generation, trail Trail, fromFirst bool) (*writer, error) {
	w := &writer{Log: l, base: g.Base, trail: trail, written: &edge{}, moved: l.archivedEnd()}
	if err := durable.MakeDir(l.dir); err != nil {
		return nil, err
	}
	if fromFirst && l.checkHistory(g.PublicKey) != nil {
		// After a crash here, the history is empty, and the log is written again from the first entry.
		if err := os.Remove(l.path(proof.HistoryFile)); err != nil {
			return nil, fmt.Errorf("replace the history of checkpoints: %w", err)
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
		if e, err := l.edge(c); err == nil && !fromFirst && lineErr == nil && known.Size >= c.Size {
			w.written, w.from = e, w.seq
		}
	}
	w.reset()
	return w, nil
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

// edge reads the tree's edge from the tiles, and proves it with the checkpoint.
func (l Log) edge(c proof.Checkpoint) (*edge, error) {
	e := &edge{}
	for _, t := range edgeTiles(c.Size) {
		data, err := l.Tile(t)
		if err != nil {
			return nil, err
		}
		for len(e.levels) < t.L {
			e.levels = append(e.levels, nil)
		}
		e.levels = append(e.levels, proof.SplitHashes(data))
	}
	if e.Edge = proof.EdgeOfTiles(e.levels); e.Root() != c.Root {
		return nil, fmt.Errorf("check tiles: %w", errUnproven)
	}
	return e, nil
}

// reset forgets the step in hand.
func (w *writer) reset() {
	w.proven, w.leaves, w.lines = w.written.Edge, nil, nil
}

// add adds a checkpoint to the step in hand, with the leaf hashes that it proves.
func (w *writer) add(ctx context.Context, c audit.Kept) error {
	if c.Size < w.proven.Len() {
		return nil // an older one, read again
	}
	leaves := w.trail.Leaves(w.base+w.proven.Len(), w.base+c.Size)
	larger := w.proven.With(leaves...)
	if larger.Len() != c.Size || larger.Root() != c.Root {
		return fmt.Errorf("checkpoint %d, of %d entries: %w", c.Seq, c.Size, errUnproven)
	}
	w.proven, w.leaves = larger, append(w.leaves, leaves...)
	w.lines = append(w.lines, proof.Line{Seq: c.Seq, Key: c.PublicKey, Checkpoint: c.Note})
	if len(w.leaves) < batchLeaves && len(w.lines) < batchLines {
		return nil
	}
	return w.write(ctx)
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
	s := &step{writer: w, edge: w.written.clone(), out: output{Log: w.Log}}
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
	w.written, w.lost, w.from = s.edge, w.lost+s.lost, w.lines[len(w.lines)-1].Seq
	w.reset()
	return nil
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
