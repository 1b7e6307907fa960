package timeline

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/auditrelay/auditrelay/internal/trail/audit"
)

// Entry is a whole entry, as the trail has it.
type Entry struct {
	Row
	// Leaf is the hash of its Merkle leaf, in base64.
	Leaf   string          `json:"leaf"`
	Window *audit.Window   `json:"window,omitempty"`
	Before json.RawMessage `json:"before,omitempty"`
	After  json.RawMessage `json:"after,omitempty"`
	Detail json.RawMessage `json:"detail,omitempty"`
	// Unsound: it is unlike the signed entry, and proves nothing.
	Unsound bool     `json:"unsound,omitempty"`
	Reviews []Review `json:"reviews,omitempty"`
}

// Review is an annotation of an entry.
type Review struct {
	Annotation
	// Entry is the annotation's own place in the trail, Time when it was made.
	Entry int64     `json:"entry"`
	Time  time.Time `json:"time"`
	// Differs: somebody reviewed another entry than this.
	Differs bool `json:"differs,omitempty"`
}

// singly is how many entries are read one by one; more are read in one pass.
const singly = 1000

// errEnough ends a pass over the trail.
var errEnough = errors.New("all is read")

// Entries calls yield with the whole of each entry chosen by f, the oldest first, and
// as the trail has it now. A missing one has its Row alone.
func (x *Index) Entries(ctx context.Context, f Filter, yield func(Entry) error) error {
	if f.Index != nil || f.Limit > 0 && f.Limit <= singly {
		_, err := x.List(ctx, f, func(row Row) error {
			e, err := x.entry(ctx, row)
			if err != nil {
				return err
			}
			return yield(e)
		})
		return err
	}
	return x.pass(ctx, f, yield)
}

// Get returns one entry from the trail; audit.ErrMissing says there is none.
func (x *Index) Get(ctx context.Context, index int64) (audit.Recorded, error) {
	return x.trail.Get(ctx, index)
}

// entry reads one from the trail.
func (x *Index) entry(ctx context.Context, row Row) (Entry, error) {
	found, err := x.trail.Get(ctx, row.Index)
	switch {
	case unreadable(err):
		row.Missing, row.Summary = true, err.Error()
		return Entry{Row: row}, nil
	case err != nil:
		return Entry{}, err
	}
	e := whole(row, found)
	e.Reviews, err = x.reviews(ctx, found)
	return e, err
}

func whole(row Row, e audit.Recorded) Entry {
	row.Type, row.Project, row.Environment, row.Setting = e.Type, e.Project, e.Environment, e.Subject
	return Entry{
		Row: row, Leaf: e.Leaf.String(), Window: e.Window, Before: e.Before, After: e.After, Detail: e.Detail, Unsound: e.Unsound,
	}
}

// reviews reads the annotations of an entry.
func (x *Index) reviews(ctx context.Context, of audit.Recorded) (list []Review, err error) {
	x.mu.RLock()
	all := x.rows.reviewsOf(of.Index)
	x.mu.RUnlock()
	for _, by := range all {
		e, err := x.trail.Get(ctx, by)
		if unreadable(err) {
			continue // a damaged annotation must not hide its entry
		}
		if err != nil {
			return nil, err
		}
		if a, ok := annotationOf(&e.Entry); ok {
			list = append(list, Review{Annotation: a, Entry: by, Time: e.Time, Differs: a.Leaf != of.Leaf.String()})
		}
	}
	return list, nil
}

// pass reads the trail from the first chosen entry on.
func (x *Index) pass(ctx context.Context, f Filter, yield func(Entry) error) error {
	r, err := x.read(ctx)
	if err != nil {
		return err
	}
	left, err := r.chosen(ctx, f)
	if err != nil || len(left) == 0 {
		return err
	}
	missing := func(before int64) error { // they cannot be read
		for ; len(left) > 0 && left[0] < before; left = left[1:] {
			row := r.table.show(left[0])
			row.Missing, row.Summary = true, unreadableHere
			if err := yield(Entry{Row: row}); err != nil {
				return err
			}
		}
		return nil
	}
	err = x.trail.Tail(ctx, left[0], func(e audit.Recorded) error {
		if err := missing(e.Index); err != nil || len(left) == 0 {
			return cmp.Or(err, errEnough)
		}
		if left[0] > e.Index {
			return nil
		}
		left = left[1:]
		row, err := r.row(e.Index)
		if err != nil {
			return err
		}
		return yield(whole(row, e))
	}, func(int64) error { return cmp.Or(missing(r.table.n), errEnough) })
	if errors.Is(err, errEnough) {
		return nil
	}
	return err
}
