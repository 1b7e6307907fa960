package audit

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/auditrelay/auditrelay/internal/store"
)

// appendAttempts is how often an append is tried of which nobody knows how it ended.
const appendAttempts = 4

// anyEntry lets appended entries follow whatever there is.
const anyEntry = -2

// Append adds e and returns its index once it is durable. An entry is added once, however
// often nobody knows whether it was stored. After an error the entry may or may not be in
// the trail: see [Trail.AppendIf].
func (t *Trail) Append(ctx context.Context, e Entry) (int64, error) {
	return t.append(ctx, e, anyEntry)
}

// AppendIf is Append where the newest entry of e's resource has the index
// newest, -1 for none. Else it adds nothing and returns ErrConflict. A caller
// who reads [Trail.Last], compares, and appends so, adds a change once: after
// crashes, after lost acknowledgements, and next to other relays.
func (t *Trail) AppendIf(ctx context.Context, e Entry, newest int64) (int64, error) {
	if newest >= 0 {
		e.PreviousIndex = &newest
	}
	return t.append(ctx, e, max(newest, -1))
}

func (t *Trail) append(ctx context.Context, e Entry, newest int64) (int64, error) {
	a, err := t.addition(e, newest)
	if err != nil {
		return 0, fmt.Errorf("append to audit trail: %w", err)
	}
	if err := t.lock(ctx); err != nil {
		return 0, err
	}
	defer t.unlock()
	for again := false; ; again = true {
		var index int64
		if err = t.ready(ctx); err == nil {
			index, err = t.place(ctx, a)
		}
		if err == nil {
			return index, nil
		}
		if again || !errors.Is(err, ErrDamaged) { // damage is named, and then it goes on
			t.metrics.appendErrors.Inc()
			return 0, fmt.Errorf("append to audit trail: %w", err)
		}
	}
}

// addition is one entry on its way.
type addition struct {
	draft  store.Draft
	leaf   tlog.Hash
	newest int64  // what the newest entry of its resource has to be
	name   string // for people
}

// addition encodes e, with a salt of its own.
func (t *Trail) addition(e Entry, newest int64) (*addition, error) {
	e.Salt = rand.Text()
	record, err := encodeRecord(e)
	if err != nil {
		return nil, err
	}
	return &addition{
		newest: newest, leaf: leafHash(record), name: fmt.Sprintf("%s of %s/%s", e.Subject, e.Project, e.Environment),
		draft: t.codec.pack(e.resource(), record),
	}, nil
}

// place adds a after the last known entry. The log takes it only there. So an entry that was
// overtaken by another relay's is refused; then the entries up to the end are read, and a is
// among them if it had arrived. A crash at any line leaves it in or out, whole.
func (t *Trail) place(ctx context.Context, a *addition) (int64, error) {
	if a.newest != anyEntry && t.newest.get(a.draft.Key) != a.newest {
		return 0, ErrConflict // entries after this look are seen by catchUp
	}
	for tries := 0; ; {
		last := t.next()
		_, err := t.entries.AppendAt(ctx, store.Pos(last), a.draft)
		switch {
		case err == nil:
			t.add(a.draft.Key, a.leaf)
			return last, nil
		case errors.Is(err, store.ErrTooLarge):
			return 0, fmt.Errorf("%w: %s takes %d bytes compressed, and the store takes %d", ErrTooLarge, a.name, len(a.draft.Data), t.entries.MaxRecord())
		case ctx.Err() != nil, errors.Is(err, store.ErrFull), errors.Is(err, store.ErrClosed), errors.Is(err, store.ErrGone):
			return 0, err
		}
		// Others were quicker, or nobody knows whether it was stored.
		if index, err := t.catchUp(ctx, a); index >= 0 || err != nil {
			return index, err
		}
		if tries++; t.next() == last && tries >= appendAttempts { // nothing new, and yet refused: not for ever
			return 0, err
		}
	}
}

// catchUp adds to the tree the entries that are in the log since. It returns the index of a
// if a is among them, else -1.
func (t *Trail) catchUp(ctx context.Context, a *addition) (int64, error) {
	state, err := t.entries.State(ctx)
	if err != nil {
		return -1, fmt.Errorf("read the end of the audit trail: %w", err)
	}
	if int64(state.End) < t.next() {
		return -1, t.damage("entries from %d on are gone", int64(state.End))
	}
	mine, conflict := int64(-1), false
	_, err = each(ctx, t.entries, store.Pos(t.next())+1, func(item store.Item) error {
		if item.Gap != nil {
			return t.damage("entries %d to %d are missing", int64(item.Gap.From)-1, int64(item.Gap.To)-1)
		}
		leaf, err := t.codec.leafOf(item.Record)
		if err != nil {
			t.suspect(fmt.Sprintf("entry %d: %v", indexOf(item.Record), err))
		}
		t.add(item.Record.Key, leaf)
		switch {
		case a == nil || mine >= 0 || item.Record.Key != a.draft.Key:
		case leaf == a.leaf:
			mine = indexOf(item.Record)
		case a.newest != anyEntry && indexOf(item.Record) > a.newest:
			conflict = true
		}
		return nil
	})
	if err == nil && mine < 0 && conflict {
		err = ErrConflict
	}
	if mine >= 0 { // the entries after it are read the next time
		err = nil
	}
	return mine, err
}

// damage has the trail read back, and is the error for the cause.
func (t *Trail) damage(format string, args ...any) error {
	err := fmt.Errorf("%w: "+format, append([]any{ErrDamaged}, args...)...)
	t.suspect(err.Error())
	return err
}

// readLeaf is the leaf of an entry that must be there.
func (t *Trail) readLeaf(ctx context.Context, index int64) (leaf tlog.Hash, err error) {
	r, err := at(ctx, t.entries, store.Pos(index)+1)
	if err != nil {
		return leaf, fmt.Errorf("read entry %d: %w", index, err)
	}
	if r == nil {
		return leaf, t.damage("entry %d is missing", index)
	}
	leaf, err = t.codec.leafOf(r)
	if err != nil {
		t.suspect(fmt.Sprintf("entry %d: %v", index, err))
	}
	return leaf, nil
}

// add grows the tree by a durable entry of a resource.
func (t *Trail) add(resource string, leaf tlog.Hash) {
	if resource != "" { // else it is the place of a lost entry
		t.newest.add(resource, t.next())
	}
	t.tree.Add(leaf)
	t.pending = append(t.pending, leaf)
	t.grown()
}
