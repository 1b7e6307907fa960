package audit

import (
	"context"
	"errors"
	"fmt"
	"sort"
	"sync"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/auditrelay/auditrelay/internal/store"
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

// errNoTree: the tree cannot be computed from the kept checkpoints.
var errNoTree = errors.New("no sound checkpoint is near")

// maxSteps bounds the search for a readable checkpoint, and so the reads for one place.
const maxSteps = 64

// lastPlace is the tree up to the entry placed last. It makes the next place cheap.
type lastPlace struct {
	mu   sync.Mutex
	base int64 // of the generation; guarded by mu
	tree tree  // guarded by mu
}

// Place finds an entry's place. In order it costs a few hashes each; the first one, or one
// out of order, some twenty reads of checkpoints, however long the trail is.
func (t *Trail) Place(ctx context.Context, e Recorded) (Place, error) {
	if err := t.isOpen(); err != nil {
		return Place{}, err
	}
	g, err := t.generationAt(ctx, e)
	if err != nil {
		return Place{}, err
	}
	p := Place{Index: e.Index, Origin: g.Origin, Leaf: e.Leaf}
	if e.Unsound { // the tree has another leaf there
		return p, nil
	}
	t.places.mu.Lock()
	defer t.places.mu.Unlock()
	if at := &t.places; at.base != g.Base || at.tree.Len() != e.Index-g.Base {
		before, err := t.treeBefore(ctx, g, e.Index)
		if errors.Is(err, errNoTree) {
			return p, nil
		}
		if err != nil {
			return Place{}, fmt.Errorf("find the tree up to entry %d: %w", e.Index, err)
		}
		at.base, at.tree = g.Base, before
	}
	t.places.tree.Add(e.Leaf)
	root := t.places.tree.Root()
	p.Size, p.Root = t.places.tree.Len(), &root
	return p, nil
}

// generationAt is the generation of an entry. Readers see the entry that opens one before the
// generation is among those of the view: then whoever has the turn is just beginning it.
func (t *Trail) generationAt(ctx context.Context, e Recorded) (Generation, error) {
	g := t.generationOf(e.Index)
	if e.Type != TypeGeneration || g.Base == e.Index {
		return g, nil
	}
	if err := t.lock(ctx); err != nil {
		return Generation{}, err
	}
	defer t.unlock()
	if t.failure != nil { // perhaps it is begun later
		return Generation{}, t.failure
	}
	return t.generationOf(e.Index), nil
}

// generationOf is the one with the entry.
func (t *Trail) generationOf(index int64) (of Generation) {
	for _, g := range t.Generations() {
		if g.Base <= index || of.Origin == "" {
			of = g
		}
	}
	return of
}

// treeBefore is the tree of a generation up to an entry, without it: from the first kept
// checkpoint over the entries before, or from the newest one and the entries after it.
func (t *Trail) treeBefore(ctx context.Context, g Generation, index int64) (tree, error) {
	n := index - g.Base
	if n == 0 {
		return tree{}, nil
	}
	c, newest, err := t.covering(ctx, index)
	if err != nil {
		return tree{}, err
	}
	if c != nil && c.Base == g.Base {
		if at, sound := c.at(n); sound {
			return at, nil
		}
		return tree{}, errNoTree
	}
	var at tree
	for seq := newest; seq > 0 && seq+maxSteps > newest && at.Len() == 0; seq-- {
		if c, err = t.keptAt(ctx, seq); err != nil {
			return tree{}, err
		}
		if c != nil && c.Base == g.Base {
			at, _ = c.at(c.Size)
		}
	}
	if n-at.Len() > maxLeaves {
		return tree{}, errNoTree
	}
	for at.Len() < n {
		leaf, err := t.readLeaf(ctx, g.Base+at.Len())
		if errors.Is(err, ErrDamaged) {
			return tree{}, errNoTree
		}
		if err != nil {
			return tree{}, err
		}
		at.Add(leaf)
	}
	return at, nil
}

// at is the tree of n leaves, as c's own hashes give it.
func (c *Kept) at(n int64) (tree, bool) {
	if !c.isSound() || n < c.from() || n > c.Size {
		return tree{}, false
	}
	before, _ := c.before()
	return before.With(c.Leaves[:n-c.from()]...), true
}

// covering is the first checkpoint over the entries up to index, without it; nil for none. It gives
// the number of the newest one too. Each covers more entries than the one before.
func (t *Trail) covering(ctx context.Context, index int64) (found *Kept, newest uint64, err error) {
	state, err := t.checkpoints.State(ctx)
	if err != nil {
		return nil, 0, fmt.Errorf("read the end of the checkpoints: %w", err)
	}
	first, newest := uint64(state.First), uint64(state.End)
	sort.Search(int(newest+1-first), func(i int) bool { // the last one that it finds is the first
		var c *Kept
		for seq := first + uint64(i); c == nil && err == nil && seq <= min(newest, first+uint64(i)+maxSteps); seq++ {
			c, err = t.keptAt(ctx, seq)
		}
		if c != nil && c.Base+c.Size < index {
			return false
		}
		found = c
		return true
	})
	return found, newest, err
}

// keptAt is the checkpoint with a number, nil where it cannot be read or is not good.
func (r *Reader) keptAt(ctx context.Context, seq uint64) (*Kept, error) {
	rec, err := at(ctx, r.checkpoints, store.Pos(seq))
	if err != nil {
		return nil, fmt.Errorf("read checkpoint %d: %w", seq, err)
	}
	if rec == nil {
		return nil, nil
	}
	c, err := decodeKept(rec)
	if err != nil {
		return nil, nil //nolint:nilerr // `trail verify` names it
	}
	return &c, nil
}
