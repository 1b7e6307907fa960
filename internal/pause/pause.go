// Package pause waits, for as long as a context lasts.
package pause

import (
	"context"
	"time"
)

// For waits for d. Where ctx ends first, it returns ctx's error.
func For(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
