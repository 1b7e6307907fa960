package cluster

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/auditrelay/auditrelay/internal/store"
)

// lazyInterval is the least time between two writes of a lazy value. Of what is put
// meanwhile, the newest is written. So a kill may cost the puts of the last moment, which
// the contract allows to a power cut only: on a cluster it costs what a power cut does.
const lazyInterval = 100 * time.Millisecond

// lazyValue is a key that is written lazily.
type lazyValue struct {
	next    *put     // what is to be written; nil for nothing
	c       store.If // its condition
	writing bool     // something writes it
	// puts counts the values that were put, and done those that were written, replaced by a
	// later one, or refused.
	puts, done uint64
	written    chan struct{} // closed at the next change of done
	hurry      chan struct{} // closed when somebody waits for that
	refused    error         // the newest write's, until another one succeeds
}

// PutLazy implements [store.Table].
func (t *Table) PutLazy(_ context.Context, key string, data []byte, c store.If) error {
	p, err := t.putOf(key, data, c)
	if err != nil {
		return err
	}
	t.mu.Lock()
	stale := t.stale[c]
	t.mu.Unlock()
	if stale && c != (store.If{}) {
		return fmt.Errorf("put the value of %s: %w", key, store.ErrConflict)
	}
	if p.data != nil {
		p.data = append([]byte{}, p.data...)
	}
	return t.lazilyIf(p, c)
}

// lazily writes a value in the background.
func (t *Table) lazily(p put) { _ = t.lazilyIf(p, store.If{}) } // once the store is closed, nobody needs it

func (t *Table) lazilyIf(p put, c store.If) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ended {
		return store.ErrClosed
	}
	v := t.lazy[p.subject]
	if v == nil {
		v = &lazyValue{written: make(chan struct{}), hurry: make(chan struct{})}
		t.lazy[p.subject] = v
	}
	v.next, v.c = &p, c
	v.puts++
	if !v.writing {
		v.writing = true
		t.store.background.Go(func() { t.writeLazily(v) })
	}
	return nil
}

// end has no more lazy values written.
func (t *Table) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ended = true
}

// writeLazily writes a value until nothing is left to be written.
func (t *Table) writeLazily(v *lazyValue) {
	for {
		t.mu.Lock()
		p, c, puts := v.next, v.c, v.puts
		if p == nil || t.store.ctx.Err() != nil {
			v.writing = false
			t.mu.Unlock()
			return
		}
		v.next = nil
		t.mu.Unlock()
		_, err := t.put(t.store.ctx, *p)
		hurry := t.settle(v, p, c, puts, err)
		select {
		case <-hurry:
		case <-time.After(lazyInterval):
		case <-t.store.ctx.Done():
		}
	}
}

// settle notes the outcome of a write. It returns a channel that is closed when somebody
// waits for the next one.
func (t *Table) settle(v *lazyValue, p *put, c store.If, puts uint64, err error) (hurry <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	v.refused = err
	switch {
	case errors.Is(err, store.ErrConflict) && !isWrongSequence(err): // the latter is a table that was busy all the while
		t.stale[c] = true // revisions grow: a condition that failed never holds again
	case err == nil, errors.Is(err, store.ErrFull), errors.Is(err, store.ErrTooLarge):
	default: // it is tried again, or a newer one instead
		if v.next == nil {
			v.next, v.c = p, c
		}
		return v.hurry
	}
	v.done = puts
	close(v.written)
	v.written = make(chan struct{})
	if v.done == v.puts {
		v.hurry = make(chan struct{})
	}
	return v.hurry
}

// flush waits until what was put of a lazy value is written.
func (t *Table) flush(ctx context.Context, subject string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	v := t.lazy[subject]
	if v == nil {
		return nil
	}
	for puts := v.puts; v.done < puts; {
		select {
		case <-v.hurry:
		default:
			close(v.hurry)
		}
		written := v.written
		t.mu.Unlock()
		err := error(nil)
		select {
		case <-written:
		case <-t.store.ctx.Done():
			err = store.ErrClosed
		case <-ctx.Done():
			err = ctx.Err()
		}
		t.mu.Lock()
		if err != nil {
			return err
		}
	}
	return nil
}

// flushGuarded waits until the lazy values are written that are conditional on a subject.
func (t *Table) flushGuarded(ctx context.Context, guard string) error {
	t.mu.Lock()
	var subjects []string
	for subject, v := range t.lazy {
		if v.done < v.puts && v.c.Key != "" && t.subject(v.c.Key) == guard {
			subjects = append(subjects, subject)
		}
	}
	t.mu.Unlock()
	for _, subject := range subjects {
		if err := t.flush(ctx, subject); err != nil {
			return err
		}
	}
	return nil
}

// flushAll waits until all lazy values are written.
func (t *Table) flushAll(ctx context.Context) error {
	t.mu.Lock()
	subjects := slices.Collect(maps.Keys(t.lazy))
	t.mu.Unlock()
	for _, subject := range subjects {
		if err := t.flush(ctx, subject); err != nil {
			return err
		}
	}
	return nil
}

// Sync implements [store.Table]. A value that was refused, because its condition does not
// hold, is an error: it is not what was put.
func (t *Table) Sync(ctx context.Context) error {
	if err := t.flushAll(ctx); err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	var failed error
	for _, v := range t.lazy {
		failed = errors.Join(failed, v.refused)
	}
	return failed
}
