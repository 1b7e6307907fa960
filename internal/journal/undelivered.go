package journal

import (
	"context"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/store"
)

// Undelivered counts the events in a store that the sink furthest back has not had. Without
// any sink they are all its events. They are those of one log, by its number. It is for a store that no relay uses right now.
func Undelivered(ctx context.Context, s store.Store, cfg config.Journal, shard int) (uint64, error) {
	j, err := look(ctx, s, cfg, shard)
	if err != nil {
		return 0, err
	}
	state, err := j.state(ctx)
	if err != nil {
		return 0, err
	}
	newest, err := j.newestMark(ctx, &state)
	if err != nil {
		return 0, err
	}
	j.end.reach(newest)
	start, err := j.startMark(ctx, &state)
	if err != nil {
		return 0, err
	}
	sinks, err := j.registered(ctx)
	if err != nil || len(sinks) == 0 {
		return newest.events - start.events, err
	}
	most := uint64(0)
	for _, sink := range sinks {
		at, why, err := j.position(ctx, sink, &state)
		if err != nil {
			return 0, err
		}
		if why != "" || at.pos < start.pos {
			at = start
		}
		if at.pos < state.End {
			most = max(most, newest.events-min(newest.events, at.events))
		}
	}
	return most, nil
}

// Peek describes the first log of events, which it makes if there is none.
func Peek(ctx context.Context, s store.Store, cfg config.Journal) (store.State, error) {
	j, err := look(ctx, s, cfg, 0)
	if err != nil {
		return store.State{}, err
	}
	return j.state(ctx)
}
