package lease

import (
	"context"
	"fmt"
	"strings"

	"github.com/auditrelay/auditrelay/internal/retry"
	"github.com/auditrelay/auditrelay/internal/store"
)

// Beating names the relays that take part in the cluster. It watches their heartbeats for as long
// as one that is silent would be taken for alive.
func Beating(ctx context.Context, table store.Table, timing Timing) (names []string, err error) {
	before, err := table.List(ctx, beatKey)
	if err != nil || len(before) == 0 {
		return nil, err
	}
	revs := map[string]uint64{}
	for _, v := range before {
		revs[v.Key] = v.Rev
	}
	if err := retry.Sleep(ctx, timing.Dead); err != nil {
		return nil, err
	}
	after, err := table.List(ctx, beatKey)
	if err != nil {
		return nil, fmt.Errorf("look for the heartbeats of relays: %w", err)
	}
	for _, v := range after {
		if revs[v.Key] != v.Rev {
			names = append(names, strings.TrimPrefix(v.Key, beatKey))
		}
	}
	return names, nil
}
