package disk

import (
	"context"

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
		return ctx.Err()
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

// end waits for whoever has the turn. Nobody gets it afterwards.
func (t turn) end() {
	t.held <- struct{}{}
	close(t.ended)
}
