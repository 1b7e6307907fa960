package audit

import (
	"context"
	"fmt"
	"slices"

	"golang.org/x/mod/sumdb/tlog"
)

// Place is where an entry stands in the tree of its generation. Its event carries it as
// the member trail: a keeper of the events can detect a trail put back.
type Place struct {
	// Index is the entry's index, over all generations.
	Index int64 `json:"index"`
	// Origin names the generation's tree, as its checkpoints do.
	Origin string `json:"origin"`
	// Leaf is the hash of the entry's Merkle leaf.
	Leaf tlog.Hash `json:"leaf"`
	// Size and Root are of the generation's tree up to this entry, its last leaf. They are
	// 0 and nil where damage hides the tree.
	Size int64      `json:"size,omitempty"`
	Root *tlog.Hash `json:"root,omitempty"`
}

// Place finds an entry's place. In order it costs a few hashes each: see treeOf.
func (t *Trail) Place(ctx context.Context, e Recorded) (Place, error) {
	g, err := t.generationAt(ctx, e)
	if err != nil {
		return Place{}, err
	}
	p := Place{Index: e.Index, Origin: g.Origin, Leaf: e.Leaf}
	if e.Unsound { // the tree has another leaf there
		return p, nil
	}
	up, sure := t.known.treeOf(g, e.Index+1-g.Base)
	if !sure {
		return p, nil
	}
	if leaf := t.known.between(e.Index, e.Index+1); !slices.Equal(leaf, []tlog.Hash{e.Leaf}) {
		return Place{}, t.damage("entry %d is another one than before", e.Index)
	}
	root := up.Root()
	p.Size, p.Root = up.Len(), &root
	return p, nil
}

// generationAt is the generation of an entry. Readers see an entry before the trail knows it, and the
// one that opens a generation before the generation is among those of the view: then whoever has the
// turn is just adding it, or another relay has.
func (t *Trail) generationAt(ctx context.Context, e Recorded) (Generation, error) {
	if err := t.isOpen(ctx); err != nil {
		return Generation{}, err
	}
	g, _ := t.view.Load().generationOf(e.Index)
	if e.Index < t.Size() && (e.Type != TypeGeneration || g.Base == e.Index) {
		return g, nil
	}
	if err := t.follows(ctx); err != nil {
		return Generation{}, err
	}
	g, _ = t.view.Load().generationOf(e.Index)
	return g, nil
}

// follows has the trail know the entries that other relays have appended.
func (t *Trail) follows(ctx context.Context) error {
	if err := t.inTurn(ctx, func() error { return t.catchUp(ctx) }); err != nil {
		return fmt.Errorf("read what another relay has appended to the audit trail: %w", err)
	}
	return nil
}

// treeUpTo is the tree of the first n leaves of a generation, of which the first ones are proven to
// give a tree. It is not known where a leaf is not.
func treeUpTo(leaves []tlog.Hash, n int64, proven tree) (tree, bool) {
	if n < proven.Len() {
		proven = tree{}
	}
	if n > int64(len(leaves)) || slices.Contains(leaves[proven.Len():n], tlog.Hash{}) {
		return tree{}, false
	}
	return proven.With(leaves[proven.Len():n]...), true
}
