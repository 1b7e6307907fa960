package lease

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/auditrelay/auditrelay/internal/retry"
	"github.com/auditrelay/auditrelay/internal/store"
)

// Alone names the relays that take part in the cluster. It watches their heartbeats for a while. If
// there are none, it declares those dead that have said nothing, as one of them may only be frozen,
// and releases all jobs: it does none, and takes none, when it goes on. A crash at any line leaves the
// others to the next call.
func Alone(ctx context.Context, table store.Table, within time.Duration) (names []string, err error) {
	if names, err = living(ctx, table, within); err != nil || len(names) > 0 {
		return names, err
	}
	return nil, releaseAll(ctx, table)
}

// living names the relays whose heartbeats change, or declares all dead.
func living(ctx context.Context, table store.Table, within time.Duration) (names []string, err error) {
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
	alive := slices.DeleteFunc(slices.Clone(after), func(v store.Value) bool {
		return slices.ContainsFunc(before, func(was store.Value) bool { return was.Key == v.Key && was.Rev == v.Rev })
	})
	for i := 0; i < len(after) && len(alive) == 0; i++ {
		v := after[i]
		_, err := table.Put(ctx, v.Key, nil, store.If{Key: v.Key, Rev: v.Rev})
		switch {
		case errors.Is(err, store.ErrConflict):
			alive = append(alive, v)
		case err != nil:
			return nil, fmt.Errorf("declare relays dead that have no heartbeats: %w", err)
		}
	}
	for _, v := range alive {
		names = append(names, strings.TrimPrefix(v.Key, beatKey))
	}
	return names, nil
}

// releaseAll gives every job's epoch another revision, under which nobody has the job. What a frozen
// relay was about to write under the earlier one is refused when it goes on.
func releaseAll(ctx context.Context, table store.Table) error {
	all, err := table.List(ctx, epochKey)
	if err != nil {
		return fmt.Errorf("read the epochs of jobs: %w", err)
	}
	for _, v := range all {
		e, _ := epochOf(v) // one that cannot be read is replaced
		data, _ := json.Marshal(Epoch{Number: e.Number, Since: time.Now().UTC()})
		if _, err := table.Put(ctx, v.Key, data, store.If{Key: v.Key, Rev: v.Rev}); err != nil {
			return fmt.Errorf("release the job %s: %w", strings.TrimPrefix(v.Key, epochKey), err)
		}
	}
	return nil
}
