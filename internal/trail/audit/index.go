package audit

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"golang.org/x/mod/sumdb/tlog"
)

// known is what a Trail knows of all entries, up to the last one: reading them makes it, and each
// appended entry is added. It takes 32 bytes an entry.
type known struct {
	mu     sync.Mutex
	newest map[string]int64 // the index of each resource's newest entry; guarded by mu
	leaves []tlog.Hash      // as signed, or else as they are; zero where they are not known; guarded by mu
	base   int64            // of the generation of tree; guarded by mu
	tree   tree             // of its first leaves: by its newest checkpoint, and then up to the entry placed last; guarded by mu
}

// add notes the next entry. Of the place of a lost one, the resource is empty.
func (k *known) add(resource string, leaf tlog.Hash) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if resource != "" {
		k.newest[resource] = int64(len(k.leaves))
	}
	k.leaves = append(k.leaves, leaf)
}

func (k *known) len() int64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	return int64(len(k.leaves))
}

// newestOf is the index of a resource's newest entry, -1 for none.
func (k *known) newestOf(resource string) int64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	if at, found := k.newest[resource]; found {
		return at
	}
	return -1
}

// correct replaces the newest entry of a resource, unless there is a newer one since.
func (k *known) correct(resource string, from, to int64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.newest[resource] == from {
		k.newest[resource] = to
	}
}

func (k *known) set(newest map[string]int64, leaves []tlog.Hash, base int64, signed tree) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.newest, k.leaves, k.base, k.tree = newest, leaves, base, signed
}

func (k *known) resources() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Sorted(maps.Keys(k.newest))
}

// between are the leaves in [from, to), as far as there are any.
func (k *known) between(from, to int64) []tlog.Hash {
	k.mu.Lock()
	defer k.mu.Unlock()
	to = min(to, int64(len(k.leaves)))
	return k.leaves[min(from, to):to:to]
}

// treeOf is the tree of the first n entries of a generation, unless one of their leaves is not known. In
// order it costs a few hashes each; the first one, or one out of order, costs those of all entries before it.
func (k *known) treeOf(g Generation, n int64) (tree, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if g.Base != k.base {
		k.base, k.tree = g.Base, tree{}
	}
	up, sure := treeUpTo(k.leaves[min(g.Base, int64(len(k.leaves))):], n, k.tree)
	if sure {
		k.tree = up
	}
	return up, sure
}

// Last returns the newest sound entry of a resource, and whether there is one. A
// damaged entry does not count: the one before it does, with Unsure set. Without any,
// Unsure means there may have been one.
func (t *Trail) Last(ctx context.Context, project, environment, subject string) (Entry, bool, error) {
	if err := t.isOpen(ctx); err != nil {
		return Entry{}, false, err
	}
	e, found, err := t.last(ctx, resource(project, environment, subject))
	if err != nil {
		return Entry{}, false, fmt.Errorf("read newest entry of %s: %w", subject, err)
	}
	return e, found, nil
}

// Newest returns the newest sound entry of each resource with this subject, in any
// project and environment.
func (t *Trail) Newest(ctx context.Context, subject string) (entries []Entry, err error) {
	if err := t.isOpen(ctx); err != nil {
		return nil, err
	}
	for _, where := range t.known.resources() {
		if !strings.HasSuffix(where, "."+token(subject)) {
			continue
		}
		e, found, err := t.last(ctx, where)
		if err != nil {
			return nil, fmt.Errorf("read newest entry of %s: %w", where, err)
		}
		if found {
			entries = append(entries, e)
		}
	}
	return entries, nil
}

// Leaves are the hashes of the leaves of the entries in [from, to): as they were signed, zero where
// that is not known, and of entries under no checkpoint as they are. Those that another relay has
// appended are read first; there are none of entries after the end.
func (t *Trail) Leaves(ctx context.Context, from, to int64) ([]tlog.Hash, error) {
	if to > t.known.len() {
		if err := t.follows(ctx); err != nil {
			return nil, err
		}
	}
	return t.known.between(from, to), nil
}

// End is the number of entries.
func (t *Trail) End(ctx context.Context) (int64, error) {
	err := t.isOpen(ctx)
	return t.Size(), err
}

// last is Last for a resource. Where its newest entry has no weight, or is none any more, the one
// before it is searched once.
func (t *Trail) last(ctx context.Context, where string) (e Entry, found bool, err error) {
	e.Index = t.known.newestOf(where)
	if e.Index >= 0 {
		got, err := t.Get(ctx, e.Index)
		switch {
		case err == nil && !got.Unsound && got.resource() == where:
			e, found = got.Entry, true
		case err == nil || errors.Is(err, ErrMissing) || errors.Is(err, ErrDamaged):
			if !contains(t.view.Load().unsound, e.Index) {
				t.suspect(fmt.Sprintf("entry %d is not what the index of the newest entries says", e.Index))
			}
			before, err := t.newestOf(ctx, where)
			if err != nil {
				return Entry{}, false, err
			}
			t.known.correct(where, e.Index, before.Index)
			e, found = before.Entry, before.Record != nil
		default:
			return Entry{}, false, err
		}
	}
	unsound := t.view.Load().unsound
	e.Unsure = len(unsound) > 0 && unsound[len(unsound)-1].To > e.Index
	return e, found, nil
}

// newestOf reads all entries in search of the newest sound one of a resource. Without any, it has the
// index -1.
func (r *Reader) newestOf(ctx context.Context, where string) (newest Recorded, err error) {
	newest.Index = -1
	err = r.Each(ctx, 0, func(e Recorded) error {
		if !e.Unsound && e.resource() == where {
			newest = e
		}
		return nil
	})
	return newest, err
}
