package timeline

import (
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
	from := int64(0)
	if f.Limit > 0 {
		found, err := r.newest(ctx, f)
		if err != nil || len(found) == 0 {
			return err
		}
		from = found[0]
	}
	p := passing{reading: r, m: f.matcher(&r.table), yield: yield}
	from = max(from, p.m.from)
	p.next = from
	err = x.trail.Tail(ctx, from, func(e audit.Recorded) error { return p.take(ctx, e) }, func(int64) error {
		if err := p.missing(ctx, r.table.n); err != nil {
			return err
		}
		return errEnough
	})
	if errors.Is(err, errEnough) {
		return nil
	}
	return err
}

// passing is a pass over the trail.
type passing struct {
	*reading
	m     *matcher
	next  int64
	yield func(Entry) error
}

func (p *passing) take(ctx context.Context, e audit.Recorded) error {
	if e.Index < p.next {
		return nil // a repetition
	}
	if err := p.missing(ctx, min(e.Index, p.table.n)); err != nil {
		return err
	}
	if p.next = e.Index + 1; e.Index >= p.table.n {
		return errEnough
	}
	fits, err := p.fits(ctx, e.Index)
	if err != nil || !fits {
		return err
	}
	row, err := p.row(e.Index)
	if err != nil {
		return err
	}
	return p.yield(whole(row, e))
}

func (p *passing) fits(ctx context.Context, index int64) (bool, error) {
	if !p.m.matches(index) {
		return false, ctx.Err()
	}
	return p.says(ctx, p.m, index)
}

// missing yields the chosen entries before an index that cannot be read.
func (p *passing) missing(ctx context.Context, until int64) error {
	for ; p.next < until; p.next++ {
		fits, err := p.fits(ctx, p.next)
		if err != nil {
			return err
		}
		if !fits {
			continue
		}
		row := p.table.show(p.next)
		row.Missing, row.Summary = true, unreadableHere
		if err := p.yield(Entry{Row: row}); err != nil {
			return err
		}
	}
	return nil
}
