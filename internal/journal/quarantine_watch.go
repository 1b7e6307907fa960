package journal

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
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
	if q.ready != nil {
		select {
		case <-q.ready:
		case <-ctx.Done():
			return
		}
	}
	for {
		took := time.Duration(0)
		err := q.insist(ctx, "reading back the log "+name, func() error {
			select {
			case q.scrubbing <- struct{}{}:
			case <-ctx.Done():
				return ctx.Err()
			}
			defer func() { <-q.scrubbing }()
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
	return retry.Insist(ctx, q.log, what, func(err error) bool { return errors.Is(err, store.ErrClosed) }, do)
}

// followedKey is the table's key of what the follower has handled.
const followedKey = "quarantine/followed"

// followed says up to where handle was called.
type followed struct {
	ID  string    `json:"log_id"`
	Pos store.Pos `json:"position"`
}

// Follow calls handle for each named loss, old and new, in order and at least once, until
// ctx ends or the store is closed. It repeats a failed call for as long as it takes. Its
// position outlives restarts, so handle hears of a loss from before a crash too. Of several
// relays one follows, and guard is the condition that it still is that one.
func (q *Quarantine) Follow(ctx context.Context, guard func() store.If, handle func(context.Context, Loss) error) error {
	return q.insist(ctx, "following the quarantine", func() error { return q.follow(ctx, guard, handle) })
}

func (q *Quarantine) follow(ctx context.Context, guard func() store.If, handle func(context.Context, Loss) error) error {
	state, err := q.names.State(ctx)
	if err != nil {
		return err
	}
	at := followed{ID: state.ID.String()}
	value, err := q.store.Table().Get(ctx, followedKey)
	if err != nil {
		return fmt.Errorf("read the follower's position: %w", err)
	}
	var known followed
	if json.Unmarshal(value.Data, &known) == nil && known.ID == at.ID {
		at.Pos = min(known.Pos, state.End)
	}
	for item, err := range q.names.Read(ctx, at.Pos+1, true) {
		if err != nil {
			return err
		}
		if item.Gap != nil {
			if err := q.Name(ctx, QuarantineLog, *item.Gap); err != nil {
				return err
			}
			continue
		}
		if loss, ok := lossIn(item.Record); ok {
			err := q.insist(ctx, "telling of a loss", func() error { return handle(ctx, loss) })
			if err != nil {
				return err
			}
		}
		// A crash before the put tells of the loss a second time.
		at.Pos = item.Record.Pos
		if err := q.keepFollowed(ctx, guard, at); err != nil {
			return err
		}
	}
	return ctx.Err()
}

func (q *Quarantine) keepFollowed(ctx context.Context, guard func() store.If, at followed) error {
	value, err := json.Marshal(at)
	if err != nil {
		return fmt.Errorf("encode the follower's position: %w", err)
	}
	return q.store.Table().PutLazy(ctx, followedKey, value, guard())
}
