package audit

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/auditrelay/auditrelay/internal/store"
)

// newest has the index of each resource's newest sound entry. It is derived from the entries
// and complete up to the last one that this Trail knows: reading them makes it, and each
// appended entry is added.
type newest struct {
	mu sync.Mutex
	of map[string]int64 // by resource; guarded by mu
}

// add notes an entry. Older ones than the known one change nothing.
func (n *newest) add(resource string, index int64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if at, known := n.of[resource]; !known || at < index {
		n.of[resource] = index
	}
}

// get is the index of a resource's newest entry, -1 for none.
func (n *newest) get(resource string) int64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	if at, known := n.of[resource]; known {
		return at
	}
	return -1
}

func (n *newest) set(of map[string]int64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.of = of
}

func (n *newest) all() map[string]int64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	return maps.Clone(n.of)
}

// Last returns the newest sound entry of a resource, and whether there is one. A
// damaged entry does not count: the one before it does, with Unsure set. Without any,
// Unsure means there may have been one.
func (t *Trail) Last(ctx context.Context, project, environment, subject string) (Entry, bool, error) {
	if err := t.isOpen(); err != nil {
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
	if err := t.isOpen(); err != nil {
		return nil, err
	}
	if err := t.reach(ctx); err != nil {
		return nil, err
	}
	for _, where := range slices.Sorted(maps.Keys(t.newest.all())) {
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

// End is the number of entries in the log, those of other relays too.
func (t *Trail) End(ctx context.Context) (int64, error) {
	if err := t.isOpen(); err != nil {
		return 0, err
	}
	s, err := t.entries.State(ctx)
	if err != nil {
		return 0, fmt.Errorf("ask for the end of the audit trail: %w", err)
	}
	return int64(s.End), nil
}

// reach takes up the entries of other relays, so that the index is complete at the end.
func (t *Trail) reach(ctx context.Context) error {
	if end, err := t.End(ctx); err != nil || end <= t.Size() {
		return err
	}
	if err := t.use(ctx); err != nil {
		return err
	}
	defer t.unlock()
	_, err := t.catchUp(ctx, nil)
	return err
}

// last is Last for a resource. The indexed entry is held against what it should be, as the
// index may be wrong about an entry that was damaged since. Then the trail is read back, and
// the entries before it are searched.
func (t *Trail) last(ctx context.Context, where string) (e Entry, found bool, err error) {
	if err := t.reach(ctx); err != nil {
		return Entry{}, false, err
	}
	e.Index = t.newest.get(where)
	if found = e.Index >= 0; found {
		got, err := t.Get(ctx, e.Index)
		switch {
		case err == nil && !got.Unsound && got.resource() == where:
			e = got.Entry
		case err == nil || errors.Is(err, ErrMissing) || errors.Is(err, ErrDamaged):
			t.suspect(fmt.Sprintf("entry %d is not what the index of the newest entries says", e.Index))
			of, err := t.newestOf(ctx, where)
			if err != nil {
				return Entry{}, false, err
			}
			if e, found = of.Entry, of.Record != nil; !found {
				e.Index = -1
			}
			e.Unsure = true
			return e, found, nil
		default:
			return Entry{}, false, err
		}
	}
	unsound := t.view.Load().unsound
	e.Unsure = len(unsound) > 0 && unsound[len(unsound)-1].To > e.Index
	return e, found, nil
}

// newestOf reads all entries in search of the newest sound one of a resource.
func (r *Reader) newestOf(ctx context.Context, where string) (newest Recorded, err error) {
	err = r.Each(ctx, 0, func(e Recorded) error {
		if !e.Unsound && e.resource() == where {
			newest = e
		}
		return nil
	})
	return newest, err
}

// indexed makes the index from a reading of all entries. Where the newest entry of a resource
// is damaged, all are read once more.
func (t *Trail) indexed(ctx context.Context, x *examination) (map[string]int64, error) {
	v := viewOf(x)
	damaged := func(index int64) bool { return contains(v.unsound, index) }
	if !slices.ContainsFunc(slices.Collect(maps.Values(x.newest)), damaged) {
		return x.newest, nil
	}
	of := map[string]int64{}
	_, err := each(ctx, t.entries, 1, func(item store.Item) error {
		if item.Record == nil || contains(v.passed, indexOf(item.Record)) || item.Record.Kind == kindLost {
			return nil
		}
		of[item.Record.Key] = indexOf(item.Record)
		return nil
	})
	for where, index := range x.newest { // those that are read from the files
		if !damaged(index) {
			of[where] = max(of[where], index)
		}
	}
	return of, err
}
