package lease

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/auditrelay/auditrelay/internal/retry"
	"github.com/auditrelay/auditrelay/internal/store"
)

// Alone names the relays that take part in the cluster. It watches their heartbeats for a while. If
// there are none, it declares those dead that have said nothing, as one of them may only be frozen:
// it does no job any more when it goes on.
func Alone(ctx context.Context, table store.Table, within time.Duration) (names []string, err error) {
	before, err := table.List(ctx, beatKey)
	if err != nil || len(before) == 0 {
		return nil, err
	}
	if err := retry.Sleep(ctx, within); err != nil {
		return nil, err
	}
	after, err := table.List(ctx, beatKey)
	if err != nil {
		return nil, fmt.Errorf("look for the heartbeats of relays: %w", err)
	}
	living := slices.DeleteFunc(slices.Clone(after), func(v store.Value) bool {
		return slices.ContainsFunc(before, func(was store.Value) bool { return was.Key == v.Key && was.Rev == v.Rev })
	})
	for i := 0; i < len(after) && len(living) == 0; i++ {
		v := after[i]
		_, err := table.Put(ctx, v.Key, nil, store.If{Key: v.Key, Rev: v.Rev})
		switch {
		case errors.Is(err, store.ErrConflict):
			living = append(living, v)
		case err != nil:
			return nil, fmt.Errorf("declare relays dead that have no heartbeats: %w", err)
		}
	}
	for _, v := range living {
		names = append(names, strings.TrimPrefix(v.Key, beatKey))
	}
	return names, nil
}
