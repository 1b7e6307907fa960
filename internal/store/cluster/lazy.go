package cluster

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/auditrelay/auditrelay/internal/retry"
	"github.com/auditrelay/auditrelay/internal/store"
)

// lazyInterval is the least time between two rounds of writes of lazy values. Of what is put
// meanwhile, the newest is written. So a kill may cost the puts of the last moment, which
// the contract allows to a power cut only: on a cluster it costs what a power cut does.
const lazyInterval = 100 * time.Millisecond

// lazyValue is a key that is written lazily.
type lazyValue struct {
	next    *put  // the newest value, until it is written or refused; nil for nothing
	refused error // the newest write's, until another one succeeds
}

// PutLazy implements [store.Table].
func (t *Table) PutLazy(_ context.Context, key string, data []byte, c store.If) error {
	p, err := t.putOf(key, data, c)
	if err != nil {
		return err
	}
	if p.data != nil {
		p.data = append([]byte{}, p.data...)
	}
	return t.lazily(p)
}

// lazily has a value written soon.
func (t *Table) lazily(p put) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.store.ctx.Err() != nil:
		return store.ErrClosed
	case p.guarded && t.newest[p.guard] > p.rev:
		return fmt.Errorf("put the value of %s: %w", p.key, store.ErrConflict)
	}
	v := t.lazy[p.subject]
	if v == nil {
		v = &lazyValue{}
		t.lazy[p.subject] = v
	}
	v.next = &p
	t.writeSoon()
	return nil
}

func (t *Table) writeSoon() {
	select {
	case t.unwritten <- struct{}{}:
	default:
	}
}

// writeLazily writes lazy values until the store is closed. What could not be written is
// tried again.
func (t *Table) writeLazily() {
	for ctx := t.store.ctx; ; {
		select {
		case <-t.unwritten:
		case <-ctx.Done():
			return
		}
		if err := t.flush(ctx, func(*put) bool { return true }); err != nil {
			t.writeSoon()
		}
		if retry.Sleep(ctx, lazyInterval) != nil {
			return
		}
	}
}

// flush writes those of the lazy values that are wanted.
func (t *Table) flush(ctx context.Context, wanted func(*put) bool) error {
	var all []*lazyValue
	t.mu.Lock()
	for _, v := range t.lazy {
		if v.next != nil && wanted(v.next) {
			all = append(all, v)
		}
	}
	t.mu.Unlock()
	var failed error
	for _, v := range all {
		failed = errors.Join(failed, t.write(ctx, v))
	}
	return failed
}

// write writes what is left of a lazy value. A refusal is no error, but the value's outcome.
// The turn keeps an older value from being written after a newer one.
func (t *Table) write(ctx context.Context, v *lazyValue) error {
	select {
	case t.turn <- struct{}{}:
		defer func() { <-t.turn }()
	case <-t.store.ctx.Done():
		return store.ErrClosed
	case <-ctx.Done():
		return ctx.Err()
	}
	t.mu.Lock()
	p := v.next
	t.mu.Unlock()
	if p == nil {
		return nil // somebody else wrote it meanwhile
	}
	_, err := t.put(ctx, *p)
	t.mu.Lock()
	defer t.mu.Unlock()
	switch conflict := errors.Is(err, store.ErrConflict); {
	case conflict && !isWrongSequence(err): // else the table was busy all the while
		t.newest[p.guard] = max(t.newest[p.guard], p.rev+1)
	case err != nil && !errors.Is(err, store.ErrFull) && !errors.Is(err, store.ErrTooLarge):
		return err // it is left for another try
	}
	v.refused = err
	if v.next == p {
		v.next = nil
	}
	return nil
}

// Sync implements [store.Table]. A value that was refused, because its condition does not
// hold, is an error: it is not what was put.
func (t *Table) Sync(ctx context.Context) error {
	if err := t.flush(ctx, func(*put) bool { return true }); err != nil {
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
