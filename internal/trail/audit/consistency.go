package audit

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/auditrelay/auditrelay/internal/store"
	tlogproof "github.com/auditrelay/auditrelay/internal/trail/proof"
)

// errNoProof: the kept checkpoints do not give the hashes of a consistency proof.
var errNoProof = errors.New("the kept checkpoints lack hashes of the tree")

// proveConsistency proves the tree of the first old entries to begin o's tree (RFC 6962,
// section 2.1.2). The hashes come from the kept checkpoints after old, one read each, so
// memory does not grow with the distance; where these are damaged, they come from the
// tiles, each proven with o's root. The proof is checked here: its refusal by a witness
// is about the trees, and not about our reading.
func (t *Trail) proveConsistency(ctx context.Context, o offered, old int64) ([]tlog.Hash, error) {
	if old <= 0 || old >= o.size {
		return nil, nil
	}
	proof, err := tlog.ProveTree(o.size, old, tlog.HashReaderFunc(func(wanted []int64) ([]tlog.Hash, error) {
		return t.gather(ctx, o, old, wanted)
	}))
	if errors.Is(err, errNoProof) && t.files != nil {
		tiles := tlog.TileHashReader(tlog.Tree{N: o.size, Hash: o.root}, t.files.Tiles(tlogproof.NoteOrigin(o.text)))
		var failed error
		if proof, failed = tlog.ProveTree(o.size, old, tiles); failed == nil {
			return proof, nil
		}
		err = fmt.Errorf("%w; from the tiles: %w", err, failed)
	}
	if err != nil {
		return nil, fmt.Errorf("prove consistency of %d with %d entries: %w", o.size, old, err)
	}
	return proof, nil
}

// gather reads the hashes of wanted subtrees, by their stored index (see tlog).
func (t *Trail) gather(ctx context.Context, o offered, old int64, wanted []int64) ([]tlog.Hash, error) {
	beyond, err := keptRun{t, Generation{Base: o.base}, 1, o.seq}.covering(ctx, o.base+old+1)
	if err == nil && (beyond == nil || beyond.base != o.base) {
		err = fmt.Errorf("%w: those after %d", errNoProof, old)
	}
	if err != nil {
		return nil, err
	}
	seq := beyond.seq
	g := gathering{found: make(map[int64]tlog.Hash, len(wanted))}
	for _, index := range wanted {
		g.found[index] = tlog.Hash{}
	}
	for first := true; g.Len() < o.size; first = false {
		c, err := t.keptAt(ctx, seq, o.base)
		if err != nil {
			return nil, err
		}
		if first {
			// Its own hashes are not signed, only their root: a damaged list ends here.
			if _, sound := c.alone(); !sound || c.from() > old {
				return nil, fmt.Errorf("%w: those between %d and %d", errNoProof, old, c.from())
			}
			g.begin(c)
		}
		if c.from() > g.Len() || c.size < g.Len() {
			return nil, fmt.Errorf("%w: those between %d and %d", errNoProof, g.Len(), c.from())
		}
		for _, leaf := range c.leaves[g.Len()-c.from():] {
			if g.Len() == o.size {
				break
			}
			g.Grow(leaf, g.take)
		}
		seq++
	}
	if g.Root() != o.root {
		return nil, fmt.Errorf("%w: they do not give the signed root", errNoProof)
	}
	hashes := make([]tlog.Hash, len(wanted))
	for i, index := range wanted {
		hashes[i] = g.found[index]
	}
	return hashes, nil
}

// keptAt reads one kept checkpoint of a generation; one of another is errNoProof.
func (t *Trail) keptAt(ctx context.Context, seq uint64, base int64) (checkpoint, error) {
	r, err := at(ctx, t.checkpoints, store.Pos(seq))
	if err != nil {
		return checkpoint{}, fmt.Errorf("read checkpoint: %w", err)
	}
	if r == nil {
		return checkpoint{}, fmt.Errorf("%w: checkpoint %d is missing", errNoProof, seq)
	}
	c, err := decodeKept(r)
	if err != nil {
		return checkpoint{}, fmt.Errorf("%w: checkpoint %d: %w", errNoProof, seq, err)
	}
	if c.base != base {
		return checkpoint{}, fmt.Errorf("%w: checkpoint %d is of another generation", errNoProof, seq)
	}
	return c, nil
}

// gathering is a growing tree with its wanted subtrees, by stored index.
type gathering struct {
	tree
	found map[int64]tlog.Hash
}

// begin starts with the tree before a sound checkpoint's own leaves.
func (g *gathering) begin(c checkpoint) {
	before, _ := c.before()
	g.tree = before.With()
	at, full := int64(0), before.Full()
	for height := 62; height >= 0 && len(full) > 0; height-- { // the largest subtree first
		if g.Len()&(1<<height) != 0 {
			g.take(height, at>>height, full[0])
			at, full = at+1<<height, full[1:]
		}
	}
}

// take notes a full subtree, where it is wanted.
func (g *gathering) take(height int, index int64, h tlog.Hash) {
	stored := tlog.StoredHashIndex(height, index)
	if _, wanted := g.found[stored]; wanted {
		g.found[stored] = h
	}
}
