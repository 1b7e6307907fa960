package quarantine

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

// Watch tells the ledger of a log, and reads all of it back now and then, until Close. Each
// gap is named. One log is read at a time.
func (l *Ledger) Watch(ctx context.Context, name string, log store.Log) error {
	l.mu.Lock()
	l.watched[name] = log
	l.mu.Unlock()
	if name == Events {
		if err := l.loadDamage(ctx); err != nil {
			return err
		}
	}
	l.watchers.Go(func() { l.watch(l.life, name, log) })
	return nil
}

func (l *Ledger) watch(ctx context.Context, name string, log store.Log) {
	if l.ready != nil {
		select {
		case <-l.ready:
		case <-ctx.Done():
			return
		}
	}
	for {
		took := time.Duration(0)
		err := l.insist(ctx, "reading back the log "+name, func() error {
			select {
			case l.scrubbing <- struct{}{}:
			case <-ctx.Done():
				return ctx.Err()
			}
			defer func() { <-l.scrubbing }()
			began := time.Now()
			err := l.scrub(ctx, name, log)
			took = time.Since(began)
			return err
		})
		if err != nil || retry.Sleep(ctx, max(scrubPause, scrubShare*took)) != nil {
			return
		}
	}
}

func (l *Ledger) scrub(ctx context.Context, name string, log store.Log) error {
	for gap, err := range log.Scrub(ctx) {
		if err != nil {
			return err
		}
		if err := l.Name(ctx, name, gap); err != nil {
			return err
		}
	}
	return nil
}

// insist calls do until it succeeds, ctx ends or the store is closed.
func (l *Ledger) insist(ctx context.Context, what string, do func() error) error {
	return retry.Insist(ctx, l.log, what, func(err error) bool { return errors.Is(err, store.ErrClosed) }, do)
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
func (l *Ledger) Follow(ctx context.Context, guard func() store.If, handle func(context.Context, Loss) error) error {
	return l.insist(ctx, "following the quarantine", func() error { return l.follow(ctx, guard, handle) })
}

func (l *Ledger) follow(ctx context.Context, guard func() store.If, handle func(context.Context, Loss) error) error {
	state, err := l.names.State(ctx)
	if err != nil {
		return err
	}
	at := followed{ID: state.ID.String()}
	value, err := l.store.Table().Get(ctx, followedKey)
	if err != nil {
		return fmt.Errorf("read the follower's position: %w", err)
	}
	var known followed
	if json.Unmarshal(value.Data, &known) == nil && known.ID == at.ID {
		at.Pos = min(known.Pos, state.End)
	}
	for item, err := range l.names.Read(ctx, at.Pos+1, true) {
		if err != nil {
			return err
		}
		if item.Gap != nil {
			if err := l.Name(ctx, Name, *item.Gap); err != nil {
				return err
			}
			continue
		}
		if loss, ok := lossIn(item.Record); ok {
			err := l.insist(ctx, "telling of a loss", func() error { return handle(ctx, loss) })
			if err != nil {
				return err
			}
		}
		// A crash before the put tells of the loss a second time.
		at.Pos = item.Record.Pos
		if err := l.keepFollowed(ctx, guard, at); err != nil {
			return err
		}
	}
	return ctx.Err()
}

func (l *Ledger) keepFollowed(ctx context.Context, guard func() store.If, at followed) error {
	value, err := json.Marshal(at)
	if err != nil {
		return fmt.Errorf("encode the follower's position: %w", err)
	}
	return l.store.Table().PutLazy(ctx, followedKey, value, guard())
}
