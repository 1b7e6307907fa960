package audit

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/auditrelay/auditrelay/internal/store"
)

// proveConsistency proves the tree of the first old entries to begin o's tree (RFC 6962,
// section 2.1.2). The hashes come from the tree up to old and from the entries after it, one
// read each, so memory does not grow with the distance; where these are damaged, they come from
// the tiles, each proven with o's root. The proof is checked here: its refusal by a witness
// is about the trees, and not about our reading.
func (t *Trail) proveConsistency(ctx context.Context, o *Offer, old int64) ([]tlog.Hash, error) {
	if old <= 0 || old >= o.Size {
		return nil, nil
	}
	proof, err := tlog.ProveTree(o.Size, old, tlog.HashReaderFunc(func(wanted []int64) ([]tlog.Hash, error) {
		return t.gather(ctx, o, old, wanted)
	}))
	if errors.Is(err, errNoTree) && t.files != nil {
		tiles := tlog.TileHashReader(tlog.Tree{N: o.Size, Hash: o.Root}, t.files.Tiles(o.Origin))
		var failed error
		if proof, failed = tlog.ProveTree(o.Size, old, tiles); failed == nil {
			return proof, nil
		}
		err = fmt.Errorf("%w; from the tiles: %w", err, failed)
	}
	if err != nil {
		return nil, fmt.Errorf("prove consistency of %d with %d entries: %w", o.Size, old, err)
	}
	return proof, nil
}

// gather computes the hashes of wanted subtrees, by their stored index (see tlog).
func (t *Trail) gather(ctx context.Context, o *Offer, old int64, wanted []int64) ([]tlog.Hash, error) {
	before, err := t.treeBefore(ctx, Generation{Base: o.base}, o.base+old)
	if err != nil {
		return nil, err
	}
	g := gathering{found: make(map[int64]tlog.Hash, len(wanted))}
	for _, index := range wanted {
		g.found[index] = tlog.Hash{}
	}
	g.begin(before)
	_, err = each(ctx, t.entries, store.Pos(o.base+old)+1, func(item store.Item) error {
		if item.Record == nil || g.Len() == o.Size {
			return errEnd
		}
		leaf, _ := t.codec.leafOf(item.Record) // the root tells
		g.Grow(leaf, g.take)
		return nil
	})
	if err != nil && !errors.Is(err, errEnd) {
		return nil, err
	}
	if g.Len() != o.Size || g.Root() != o.Root {
		return nil, fmt.Errorf("%w: the entries do not give the signed root", errNoTree)
	}
	hashes := make([]tlog.Hash, len(wanted))
	for i, index := range wanted {
		hashes[i] = g.found[index]
	}
	return hashes, nil
}

// gathering is a growing tree with its wanted subtrees, by stored index.
type gathering struct {
	tree
	found map[int64]tlog.Hash
}

// begin starts with a tree.
func (g *gathering) begin(before tree) {
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
