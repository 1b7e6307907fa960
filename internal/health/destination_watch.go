package health

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/auditrelay/auditrelay/internal/ingest/received"
	"github.com/auditrelay/auditrelay/internal/retry"
)

// The time between two looks at one destination, after a good look and after failures.
const (
	askInterval     = 2 * time.Minute
	longestAskPause = 30 * time.Minute
)

// Target is an environment at its destination.
type Target struct {
	Page        *received.Environment
	Destination *Destination
}

// WatchDestinations looks at each target until ctx ends, and writes the newest events into the pages.
func WatchDestinations(ctx context.Context, targets []Target, log *slog.Logger) {
	var all sync.WaitGroup
	for _, t := range targets {
		all.Go(func() { t.watch(ctx, log) })
	}
	all.Wait()
}

func (t Target) watch(ctx context.Context, log *slog.Logger) {
	var failure retry.Failure
	env, wait := t.Page.Name(), askInterval
	log = log.With("project", env.Project, "environment", env.Environment)
	for ctx.Err() == nil {
		began := time.Now()
		newest, err := t.Destination.Newest(ctx)
		switch {
		case err == nil:
			t.Page.Saw(newest, began)
			wait = askInterval
			if fields, was := failure.Over(); was {
				log.Info("the destination's newest event is known again", fields...)
			}
		case ctx.Err() == nil:
			if failure.Again(err.Error()) {
				log.Warn("the newest event at the stream's destination is not known; it is asked for again", append(failure.Fields(), "error", err)...)
			}
			wait = min(2*wait, longestAskPause)
		}
		// A tenth of it is random: the looks of many environments spread.
		_ = retry.Sleep(ctx, wait+time.Duration(rand.Int64N(int64(wait)/10))) //nolint:gosec // not for secrets
	}
}
