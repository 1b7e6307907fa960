package audit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/mod/sumdb/tlog"
)

// Report is what [Trail.Verify] found.
type Report struct {
	// Entries there are, and how many of them the newest good checkpoint
	// covers; what is above Signed no signature speaks of yet.
	Entries, Signed int64
	// Checkpoints whose signature and root are good.
	Checkpoints int
	// Root is the hash of the tree of all Entries.
	Root tlog.Hash
	// Problems, none where the trail is whole.
	Problems []Problem
}

// Problem is a run of entries that is not what was signed.
type Problem struct {
	// Kind is altered, removed, moved, foreign, truncated, missing, misfiled,
	// unproven or checkpoint.
	Kind string
	// From and To are the first and the last index concerned.
	From, To int64
	// Detail says more.
	Detail string
}

func (p Problem) String() string {
	where := fmt.Sprintf("entry %d", p.From)
	if p.To > p.From {
		where = fmt.Sprintf("entries %d to %d", p.From, p.To)
	}
	return fmt.Sprintf("%s %s: %s", where, p.Kind, p.Detail)
}

// maxNamed bounds how many problems an error spells out.
const maxNamed = 20

// Err is nil where there is no problem, else ErrDamaged with what was found.
func (r *Report) Err() error {
	if len(r.Problems) == 0 {
		return nil
	}
	var text strings.Builder
	for i, p := range r.Problems {
		if i == maxNamed {
			fmt.Fprintf(&text, "; and %d more", len(r.Problems)-i)
			break
		}
		if i > 0 {
			text.WriteString("; ")
		}
		text.WriteString(p.String())
	}
	return fmt.Errorf("%w: %s", ErrDamaged, text.String())
}

// Verify reads every entry and every checkpoint back and proves the one by the
// other: the signature of each checkpoint, its root against the tree of that
// size, each entry against its signed leaf hash, the sequences without a gap,
// and each entry under its own subject. What it finds is in the Report; the
// error is for a trail that cannot be read. Appends may go on meanwhile. Memory:
// 64 bytes an entry, and about 250 where something is wrong.
func (t *Trail) Verify(ctx context.Context) (Report, error) {
	found, err := t.examine(ctx)
	if err != nil {
		return Report{}, fmt.Errorf("verify audit trail: %w", err)
	}
	return found.report, nil
}

// examination is a Report and what Open goes on with.
type examination struct {
	report  Report
	leaves  []tlog.Hash // of the entries as they are; zero where one is missing
	signed  tree        // proven by the newest good checkpoint
	keptSeq uint64
}

func (t *Trail) examine(ctx context.Context) (*examination, error) {
	x := &examination{}
	// The pin first, then the checkpoints, then the entries: each may speak of
	// the next only, and all three grow while they are read.
	pin, err := os.ReadFile(t.pinFile)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read newest checkpoint beside the key: %w", err)
	}
	history, err := t.readCheckpoints(ctx, x)
	if err != nil {
		return nil, err
	}
	if err := t.readLeaves(ctx, x); err != nil {
		return nil, err
	}
	want := x.prove(history)
	if pin != nil {
		t.checkPin(x, pin, history)
	}
	x.report.Problems = append(compareLeaves(x.leaves, want), x.report.Problems...)
	x.report.Entries, x.report.Signed = int64(len(x.leaves)), int64(len(want))
	x.report.Root = tree{}.grown(x.leaves...).root()
	return x, nil
}

func (x *examination) problem(kind string, from, to int64, format string, args ...any) {
	x.report.Problems = append(x.report.Problems, Problem{kind, from, to, fmt.Sprintf(format, args...)})
}

// readCheckpoints reads those with a good signature, and reports the others.
func (t *Trail) readCheckpoints(ctx context.Context, x *examination) ([]checkpoint, error) {
	var history []checkpoint
	size := int64(0)
	err := scan(ctx, t.checkpoints, func(seq uint64, msg jetstream.Msg) error {
		for x.keptSeq++; x.keptSeq < seq; x.keptSeq++ {
			x.problem("checkpoint", size, size, "checkpoint %d is missing", x.keptSeq)
		}
		c, err := decodeKept(t.key, msg.Data(), seq)
		if err != nil {
			x.problem("checkpoint", size, size, "checkpoint %d: %v", seq, err)
			return nil
		}
		size = c.size
		history = append(history, c)
		return nil
	})
	return history, err
}

// readLeaves hashes every entry.
func (t *Trail) readLeaves(ctx context.Context, x *examination) error {
	return scan(ctx, t.entries, func(seq uint64, msg jetstream.Msg) error {
		index := int64(seq) - 1
		for int64(len(x.leaves)) < index {
			x.leaves = append(x.leaves, tlog.Hash{})
		}
		record, err := t.codec.unpack(msg.Headers(), msg.Data())
		if err != nil {
			record = msg.Data()
		}
		x.leaves = append(x.leaves, leafHash(record))
		if _, err := t.decode(msg.Subject(), msg.Headers(), msg.Data(), seq); err != nil {
			x.problem("misfiled", index, index, "%v", err)
		} else if canonical, err := Canonical(record); err != nil || !bytes.Equal(canonical, record) {
			x.problem("misfiled", index, index, "the record is not in canonical form")
		}
		return nil
	})
}

// prove grows the signed tree checkpoint by checkpoint. It returns the leaf
// hashes that the signatures vouch for, zero where none does: from the
// checkpoints' own lists, or where those are damaged from the entries, if they
// give the signed root.
func (x *examination) prove(history []checkpoint) []tlog.Hash {
	var want []tlog.Hash
	end := int64(0) // of what some checkpoint speaks of
	for _, c := range history {
		if leaves, ok := x.explain(c); ok {
			want = append(want, leaves...)
			x.signed = x.signed.grown(leaves...)
			x.report.Checkpoints++
		} else if t, ok := c.alone(); ok && c.from() >= x.signed.n {
			x.unproven(x.signed.n, c.from())
			want = append(append(want, make([]tlog.Hash, c.from()-x.signed.n)...), c.leaves...)
			x.signed = t
			x.report.Checkpoints++
		}
		end = max(end, c.size)
	}
	x.unproven(x.signed.n, end)
	return want
}

// unproven reports [from, to), where neither the checkpoints' hashes nor the
// entries give the signed roots.
func (x *examination) unproven(from, to int64) {
	if from < to {
		x.problem("unproven", from, to-1, "neither they nor the hashes kept with the checkpoints give the signed root")
	}
}

// explain finds the leaves that lead from the signed tree to c's root.
func (x *examination) explain(c checkpoint) ([]tlog.Hash, bool) {
	base := x.signed.n
	if c.size < base {
		return nil, false
	}
	var candidates [][]tlog.Hash
	if from := c.from(); from <= base {
		candidates = append(candidates, c.leaves[base-from:])
	} else if from <= int64(len(x.leaves)) { // a checkpoint between is missing
		candidates = append(candidates, append(x.leaves[base:from:from], c.leaves...))
	}
	if c.size <= int64(len(x.leaves)) {
		candidates = append(candidates, x.leaves[base:c.size])
	}
	for _, leaves := range candidates {
		if next := x.signed.grown(leaves...); next.n == c.size && next.root() == c.root {
			return leaves, true
		}
	}
	return nil, false
}

// checkPin holds the checkpoint beside the key against the history: a
// roll-back of both streams leaves it ahead of them.
func (t *Trail) checkPin(x *examination, text []byte, history []checkpoint) {
	newest, n := checkpoint{}, int64(0)
	pin, err := openCheckpoint(t.key, text)
	for _, c := range history {
		n = max(n, c.size)
		if c.size == pin.size {
			newest = c
		}
	}
	switch {
	case err != nil:
		x.problem("checkpoint", n, n, "the one beside the key: %v", err)
	case pin.size > n:
		x.problem("truncated", n, pin.size-1, "the checkpoint beside the key covers %d entries, the kept ones %d", pin.size, n)
	case newest.root != pin.root:
		x.problem("checkpoint", 0, pin.size-1, "the one beside the key is not among the kept ones")
	}
}
