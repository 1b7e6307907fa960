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
	next    *put          // what is to be written; nil for nothing
	c       store.If      // its condition
	idle    chan struct{} // closed once nothing is left to be written; nil while idle
	hurry   chan struct{} // closed when somebody waits for it
	refused error         // the newest write's, until another one succeeds
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
	if t.store.ctx.Err() != nil {
		return store.ErrClosed
	}
	if p.data != nil {
		p.data = append([]byte{}, p.data...)
	}
	t.lazilyIf(p, c)
	return nil
}

// lazily writes a value in the background.
func (t *Table) lazily(p put) { t.lazilyIf(p, store.If{}) }

func (t *Table) lazilyIf(p put, c store.If) {
	t.mu.Lock()
	defer t.mu.Unlock()
	v := t.lazy[p.subject]
	if v == nil {
		v = &lazyValue{}
		t.lazy[p.subject] = v
	}
	v.next, v.c = &p, c
	if v.idle == nil {
		v.idle, v.hurry = make(chan struct{}), make(chan struct{})
		t.store.background.Go(func() { t.writeLazily(v) })
	}
}

// writeLazily writes a value until nothing is left to be written.
func (t *Table) writeLazily(v *lazyValue) {
	for {
		t.mu.Lock()
		p, c := v.next, v.c
		if p == nil || t.store.ctx.Err() != nil {
			close(v.idle)
			v.idle, v.next = nil, nil
			t.mu.Unlock()
			return
		}
		v.next = nil
		hurry := v.hurry
		t.mu.Unlock()
		_, err := t.put(t.store.ctx, *p)
		t.written(v, p, c, err)
		select {
		case <-hurry:
		case <-time.After(lazyInterval):
		case <-t.store.ctx.Done():
		}
	}
}

// written notes the outcome of a write.
func (t *Table) written(v *lazyValue, p *put, c store.If, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	v.refused = err
	switch {
	case err == nil:
	case errors.Is(err, store.ErrConflict):
		// Revisions grow: a condition that failed never holds again.
		t.stale[c] = true
	case v.next == nil && !errors.Is(err, store.ErrFull):
		v.next, v.c = p, c // it is tried again, unless a newer one came
	}
}

// flush waits until a lazy value is written.
func (t *Table) flush(ctx context.Context, subject string) error {
	t.mu.Lock()
	v := t.lazy[subject]
	if v == nil || v.idle == nil {
		t.mu.Unlock()
		return nil
	}
	idle := v.idle
	select {
	case <-v.hurry:
	default:
		close(v.hurry)
	}
	t.mu.Unlock()
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// flushGuarded waits until the lazy values are written that are conditional on a subject.
func (t *Table) flushGuarded(ctx context.Context, guard string) error {
	t.mu.Lock()
	var subjects []string
	for subject, v := range t.lazy {
		if v.idle != nil && v.c.Key != "" && t.subject(v.c.Key) == guard {
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
