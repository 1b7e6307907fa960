package audit

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"

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

func (t *Trail) append(ctx context.Context, e Entry, newest int64) (index int64, err error) {
	a, err := t.addition(e, newest)
	if err == nil {
		index, err = t.await(ctx, a)
	}
	if err != nil {
		t.metrics.appendErrors.Inc()
		return 0, fmt.Errorf("append to audit trail: %w", err)
	}
	return index, nil
}

// addition is one entry on its way.
type addition struct {
	draft  store.Draft
	leaf   tlog.Hash
	newest int64  // what the newest entry of its resource has to be
	name   string // for people

	finished bool // and so are the next two; set in the turn
	index    int64
	err      error
	done     chan struct{} // closed then
}

func (a *addition) finish(index int64, err error) {
	a.finished, a.index, a.err = true, index, err
	close(a.done)
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
		draft: t.codec.pack(e.resource(), record), done: make(chan struct{}),
	}, nil
}

// await has an entry appended.
func (t *Trail) await(ctx context.Context, a *addition) (int64, error) {
	select {
	case t.additions <- a:
	case <-t.done:
		return 0, ErrUnavailable
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	select {
	case <-a.done:
		return a.index, a.err
	case <-t.done:
		return 0, fmt.Errorf("%w: the trail was closed", store.ErrUnknown)
	case <-ctx.Done(): // perhaps it is appended all the same
		return 0, fmt.Errorf("%w: %w", store.ErrUnknown, ctx.Err())
	}
}

// groupEntries and groupBytes bound what is appended at once.
const groupEntries, groupBytes = 256, 4 << 20

// appendAll appends the entries on their way, until ctx ends. Those that wait are appended together,
// so that a thousand of them take a few writes.
func (t *Trail) appendAll(ctx context.Context) {
	for {
		select {
		case a := <-t.additions:
			t.appendGroup(ctx, a)
		case <-ctx.Done():
			return
		}
	}
}

// appendGroup appends an entry, and others that wait.
func (t *Trail) appendGroup(ctx context.Context, first *addition) {
	group, size, from := []*addition{first}, len(first.draft.Data), int64(-1)
	place := func() error {
		if from < 0 {
			from = t.next()
		}
		for len(t.additions) > 0 && len(group) < groupEntries && size < groupBytes {
			a := <-t.additions
			group, size = append(group, a), size+len(a.draft.Data)
		}
		return t.place(ctx, group, from)
	}
	err := t.inTurn(ctx, place)
	if errors.Is(err, ErrDamaged) { // damage is named, and then it goes on
		err = t.inTurn(ctx, place)
	}
	for _, a := range group {
		if !a.finished {
			a.finish(0, err)
		}
	}
}

// place adds entries after the last known one. The log takes them only there. If nobody knows
// whether it did, or if it ends elsewhere, the entries up to its end are read, and those of the
// group are among them that had arrived, at the index from at the earliest. A crash at any line leaves
// the first few of them in the log, each whole.
func (t *Trail) place(ctx context.Context, group []*addition, from int64) error {
	for tries := 0; ; {
		t.arrived(group, from)
		last, drafts := t.next(), t.fitting(group)
		if len(drafts) == 0 {
			return nil
		}
		_, err := t.entries.AppendAt(ctx, store.Pos(last), drafts...)
		switch {
		case err == nil:
			for _, a := range group {
				if !a.finished {
					a.finish(t.next(), nil)
					t.add(a.draft.Key, a.leaf)
				}
			}
			return nil
		case ctx.Err() != nil, errors.Is(err, store.ErrFull), errors.Is(err, store.ErrClosed), errors.Is(err, store.ErrGone), errors.Is(err, store.ErrTooLarge):
			return err
		}
		if err := t.catchUp(ctx); err != nil {
			t.arrived(group, from)
			return err
		}
		if tries++; t.next() == last && tries >= appendAttempts { // nothing new, and yet refused: not for ever
			return err
		}
	}
}

// arrived finishes the entries of a group that stand in the trail from an index on.
func (t *Trail) arrived(group []*addition, from int64) {
	for i, leaf := range t.known.between(from, t.next()) {
		at := slices.IndexFunc(group, func(a *addition) bool { return a.leaf == leaf && !a.finished })
		if at >= 0 {
			group[at].finish(from+int64(i), nil)
		}
	}
}

// fitting are the drafts of the entries in a group that may be appended now. The others are finished.
func (t *Trail) fitting(group []*addition) (drafts []store.Draft) {
	newest := map[string]int64{} // with the entries of the group
	for _, a := range group {
		if a.finished {
			continue
		}
		at, appended := newest[a.draft.Key]
		if !appended {
			at = t.known.newestOf(a.draft.Key)
		}
		switch most := t.entries.MaxRecord(); {
		case a.newest != anyEntry && at != a.newest:
			a.finish(0, ErrConflict)
		case len(a.draft.Key)+len(a.draft.Data) > most:
			a.finish(0, fmt.Errorf("%w: %s takes %d bytes compressed, and the store takes %d", ErrTooLarge, a.name, len(a.draft.Data), most))
		default:
			newest[a.draft.Key] = t.next() + int64(len(drafts))
			drafts = append(drafts, a.draft)
		}
	}
	return drafts
}

// catchUp adds to the tree the entries that are in the log since.
func (t *Trail) catchUp(ctx context.Context) error {
	state, err := t.entries.State(ctx)
	if err != nil {
		return fmt.Errorf("read the end of the audit trail: %w", err)
	}
	if int64(state.End) < t.next() {
		return t.damage("entries from %d on are gone", int64(state.End))
	}
	_, err = each(ctx, t.entries, store.Pos(t.next())+1, func(item store.Item) error {
		if item.Gap != nil {
			return t.damage("entries %d to %d are missing", int64(item.Gap.From)-1, int64(item.Gap.To)-1)
		}
		e, err := t.codec.open(item.Record)
		if errors.Is(err, ErrDamaged) {
			t.suspect(err.Error())
		}
		if err == nil && e.isOwn() && e.Type == TypeGeneration {
			return t.damage("another relay has begun a generation with entry %d", e.Index)
		}
		t.add(item.Record.Key, e.Leaf)
		return nil
	})
	return err
}

// damage has the trail read back, and is the error for the cause.
func (t *Trail) damage(format string, args ...any) error {
	err := fmt.Errorf("%w: "+format, append([]any{ErrDamaged}, args...)...)
	t.suspect(err.Error())
	return err
}

// add takes in a durable entry of a resource.
func (t *Trail) add(resource string, leaf tlog.Hash) {
	t.known.add(resource, leaf)
	t.grown()
}
