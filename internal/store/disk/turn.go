package disk

import (
	"context"
	"fmt"

	"github.com/auditrelay/auditrelay/internal/store"
)

// turn is a lock. Whoever waits for it gives up when their context ends, or when the turns
// have ended.
type turn struct{ held, ended chan struct{} }

func newTurn() turn { return turn{make(chan struct{}, 1), make(chan struct{})} }

func (t turn) lock(ctx context.Context) error {
	select {
	case t.held <- struct{}{}:
		return nil
	case <-t.ended:
		return store.ErrClosed
	case <-ctx.Done():
		return fmt.Errorf("the disk has not finished an earlier write: %w", ctx.Err())
	}
}

func (t turn) tryLock() bool {
	select {
	case t.held <- struct{}{}:
		return true
	default:
		return false
	}
}

func (t turn) unlock() { <-t.held }

// during calls do in a turn, on a goroutine of its own: the disk takes as long as it likes, and
// whoever asked waits no longer than ctx lasts. Then nobody knows how it will end.
func (t turn) during(ctx context.Context, do func() error) error {
	if err := t.lock(ctx); err != nil {
		return err
	}
	done := make(chan error, 1)
	go func() {
		err := do()
		t.unlock()
		done <- err
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("%w: the disk has not confirmed it: %w", store.ErrUnknown, ctx.Err())
	}
}

// end waits for whoever has the turn. Nobody gets it afterwards.
func (t turn) end() {
	t.held <- struct{}{}
	close(t.ended)
}
