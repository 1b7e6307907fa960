package timeline

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
)

// reading is an index for one question.
type reading struct {
	table table
	texts texts
}

// read takes a copy, with all entries there are now.
func (x *Index) read(ctx context.Context) (*reading, error) {
	if err := x.Ready(ctx); err != nil {
		return nil, err
	}
	x.mu.RLock()
	defer x.mu.RUnlock()
	if x.file == nil {
		return nil, errors.New("the index of the audit trail is closed: the relay is shutting down")
	}
	return &reading{table: x.rows.snapshot(), texts: texts{file: x.file}}, nil
}

// Reviewed reports whether an annotation of the entry at index is known by now. It waits for
// nothing.
func (x *Index) Reviewed(index int64) bool {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return index >= 0 && index < x.rows.n && x.rows.isReviewed(index)
}

// List calls yield with the entries chosen by f, the oldest first. It returns the
// number of entries it has looked at.
func (x *Index) List(ctx context.Context, f Filter, yield func(Row) error) (int64, error) {
	r, err := x.read(ctx)
	if err != nil {
		return 0, err
	}
	return r.table.n, r.list(ctx, f, yield)
}

// Find gives the indexes of the entries chosen by f, except for missing ones.
func (x *Index) Find(ctx context.Context, f Filter) (found []int64, err error) {
	_, err = x.List(ctx, f, func(r Row) error {
		if !r.Missing {
			found = append(found, r.Index)
		}
		return nil
	})
	return found, err
}

// Follow calls yield with the entries chosen by f from index from on, also new ones, until
// ctx ends. The filter's limit does not count, since each new entry is wanted.
func (x *Index) Follow(ctx context.Context, from int64, f Filter, yield func(Row) error) error {
	f.Limit = 0
	for {
		if err := x.until(ctx, func() bool { return x.rows.n > from }); err != nil {
			return err
		}
		r, err := x.read(ctx)
		if err != nil {
			return err
		}
		if f.From == nil || *f.From < from {
			f.From = new(from)
		}
		if err := r.list(ctx, f, yield); err != nil {
			return err
		}
		from = r.table.n
	}
}

// list calls yield with the rows chosen by f, the oldest first.
func (r *reading) list(ctx context.Context, f Filter, yield func(Row) error) error {
	found, err := r.chosen(ctx, f)
	for _, index := range found {
		row, err := r.row(index)
		if err = cmp.Or(err, ctx.Err()); err == nil {
			err = yield(row)
		}
		if err != nil {
			return err
		}
	}
	return err
}

// chosen are the indexes of the entries chosen by f, the oldest first.
func (r *reading) chosen(ctx context.Context, f Filter) (found []int64, err error) {
	m := f.matcher(&r.table)
	for index := range m.down {
		if index%blockRows == 0 && ctx.Err() != nil {
			return nil, ctx.Err()
		}
		fits, err := m.phrase.isIn(r, index)
		if err != nil {
			return nil, err
		}
		if fits {
			found = append(found, index)
		}
		if f.Limit > 0 && len(found) >= f.Limit {
			break
		}
	}
	slices.Reverse(found)
	return found, nil
}

// row is a readable row.
func (r *reading) row(index int64) (row Row, err error) {
	if row = r.table.show(index); row.Missing {
		return row, nil
	}
	of := r.table.at(index)
	text, err := r.texts.read(of.Text, int(of.Length))
	summary, _, _ := bytes.Cut(text, []byte{behindSummary})
	row.Summary = string(summary)
	return row, err
}

// texts reads neighbouring pieces of a file.
type texts struct {
	file *os.File
	held []byte
	from int64 // of held
}

// heldBytes is how much is read at once.
const heldBytes = 256 << 10

// read gives a piece, valid until the next call.
func (t *texts) read(offset int64, n int) ([]byte, error) {
	isHeld := func() bool { return offset >= t.from && offset+int64(n) <= t.from+int64(len(t.held)) }
	if !isHeld() { // then its surroundings on both sides are: a reader goes up or down
		t.from = max(0, offset+int64(n)/2-heldBytes/2)
		t.held = slices.Grow(t.held[:0], heldBytes)[:heldBytes]
		got, err := t.file.ReadAt(t.held, t.from)
		if t.held = t.held[:got]; !isHeld() {
			t.held = nil
			return nil, fmt.Errorf("read the index of the audit trail: %w", err)
		}
	}
	return t.held[offset-t.from:][:n], nil
}
