package app

import (
	"context"
	"slices"
	"time"

	"github.com/auditrelay/auditrelay/internal/trail/timeline"
)

// About is the section "relay" of /status.
type About struct {
	Version string    `json:"version"`
	Started time.Time `json:"started"`
	// Now is the relay's clock: ages are by it.
	Now     time.Time `json:"now"`
	DataDir string    `json:"data_dir"`
	// Config is the configuration that the relay runs with.
	Config ConfigState `json:"config"`
}

// changesShown is how many changes /status shows.
const changesShown = 5

// startStatus adds the sections of /status about the relay as a whole.
func (r *process) startStatus(context.Context) error {
	began := time.Now()
	r.admin.AddStatus("relay", func(context.Context) (any, error) {
		return About{Version: r.version, Started: began, Now: time.Now(), DataDir: r.cfg().DataDir, Config: *r.reload.now.Load()}, nil
	})
	return nil
}

// changes are the newest changes of the workspace, the newest first.
func (c *control) changes(ctx context.Context) (any, error) {
	all := []timeline.Row{}
	for _, typ := range []string{"streaming.*changed", "settings.changed"} {
		if _, err := c.timeline.List(ctx, timeline.Filter{Type: typ, Limit: changesShown}, func(row timeline.Row) error {
			all = append(all, row)
			return nil
		}); err != nil {
			return nil, err
		}
	}
	slices.SortFunc(all, func(a, b timeline.Row) int { return int(b.Index - a.Index) })
	return all[:min(changesShown, len(all))], nil
}
