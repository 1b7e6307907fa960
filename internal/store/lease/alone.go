package lease

import (
	"context"
	"errors"
	"fmt"
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
	silent := map[string]uint64{}
	for _, v := range before {
		silent[v.Key] = v.Rev
	}
	for _, v := range after {
		if silent[v.Key] != v.Rev {
			names = append(names, strings.TrimPrefix(v.Key, beatKey))
		}
	}
	for _, v := range after {
		if len(names) > 0 {
			break
		}
		_, err := table.Put(ctx, v.Key, nil, store.If{Key: v.Key, Rev: v.Rev})
		switch {
		case errors.Is(err, store.ErrConflict):
			names = append(names, strings.TrimPrefix(v.Key, beatKey))
		case err != nil:
			return nil, fmt.Errorf("declare relays dead that have no heartbeats: %w", err)
		}
	}
	return names, nil
}
