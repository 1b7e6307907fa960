package workspace

import (
	"context"
	"errors"
	"sync"
	"time"
)

// Snapshot looks at every setting once, due or not, and joins all failures.
func (w *Watcher) Snapshot(ctx context.Context) error {
	errs := make([]error, len(w.groups))
	var all sync.WaitGroup
	for i, g := range w.groups {
		all.Go(func() { errs[i] = w.round(ctx, g, time.Now().AddDate(100, 0, 0)) })
	}
	all.Wait()
	return errors.Join(errs...)
}
