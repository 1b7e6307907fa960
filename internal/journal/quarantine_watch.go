package journal

import (
	"context"
	"errors"
	"time"

	"github.com/auditrelay/auditrelay/internal/retry"
	"github.com/auditrelay/auditrelay/internal/store"
)

const (
	// A log is read through at the start, and again after scrubPause, or after scrubShare
	// times what it took where that is longer.
	scrubPause = time.Hour
	scrubShare = 300
)

// Watch tells the quarantine of a log, and reads all of it back now and then, until Close. Each
// gap is named. One log is read at a time.
func (q *Quarantine) Watch(ctx context.Context, name string, log store.Log) error {
	q.mu.Lock()
	q.watched[name] = log
	q.mu.Unlock()
	if name == EventsLog {
		if err := q.loadDamage(ctx); err != nil {
			return err
		}
	}
	q.watchers.Go(func() { q.watch(q.life, name, log) })
	return nil
}

func (q *Quarantine) watch(ctx context.Context, name string, log store.Log) {
	if q.opts.Ready != nil {
		select {
		case <-q.opts.Ready:
		case <-ctx.Done():
			return
		}
	}
	for {
		took := time.Duration(0)
		err := q.insist(ctx, "reading back the log "+name, func() error {
			if err := q.scrubbing.take(ctx); err != nil {
				return err
			}
			defer q.scrubbing.free()
			began := time.Now()
			err := q.scrub(ctx, name, log)
			took = time.Since(began)
			return err
		})
		if err != nil || retry.Sleep(ctx, max(scrubPause, scrubShare*took)) != nil {
			return
		}
	}
}

func (q *Quarantine) scrub(ctx context.Context, name string, log store.Log) error {
	for gap, err := range log.Scrub(ctx) {
		if err != nil {
			return err
		}
		if err := q.Name(ctx, name, gap); err != nil {
			return err
		}
	}
	return nil
}

// insist calls do until it succeeds, ctx ends or the store is closed.
func (q *Quarantine) insist(ctx context.Context, what string, do func() error) error {
	return retry.Insist(ctx, q.opts.Logger, what, func(err error) bool { return errors.Is(err, store.ErrClosed) }, do)
}

// Follow calls handle for each named loss, old and new, in order, until ctx ends or the store is
// closed. It repeats a failed call for as long as it takes. It begins with the first one at each
// start, so that handle hears of a loss from before a crash, too, and passes over what it knows.
func (q *Quarantine) Follow(ctx context.Context, handle func(context.Context, Loss) error) error {
	return q.insist(ctx, "following the quarantine", func() error {
		for item, err := range q.names.Read(ctx, 1, true) {
			if err == nil && item.Gap != nil {
				err = q.Name(ctx, QuarantineLog, *item.Gap)
			}
			if err != nil {
				return err
			}
			if item.Record == nil {
				continue
			}
			if loss, ok := lossIn(item.Record); ok {
				err = q.insist(ctx, "telling of a loss", func() error { return handle(ctx, loss) })
			}
			if err != nil {
				return err
			}
		}
		return ctx.Err()
	})
}
