package journal

import (
	"context"
	"fmt"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/store"
)

// Undelivered counts the events in a store that the sink furthest back has not had, in each log. Without
// any sink they are all its events. It is for a store that no relay uses right now.
func Undelivered(ctx context.Context, s store.Store, cfg config.Journal) (sum uint64, err error) {
	_, by, err := undelivered(ctx, s, cfg)
	for _, n := range by {
		sum += n
	}
	return sum, err
}

// InOneLog returns an error unless all undelivered events of a store are in the first log.
func InOneLog(ctx context.Context, s store.Store, cfg config.Journal) error {
	l, by, err := undelivered(ctx, s, cfg)
	if err != nil {
		return err
	}
	if l.Shards > 1 {
		return fmt.Errorf("the events are spread over %d shards: start the relays with journal.shards: 1, and try again once 'auditrelay sinks list' shows nothing pending", l.Shards)
	}
	for shard, left := range by {
		if shard > 0 && left > 0 {
			return fmt.Errorf("the shard %d still holds %d events that some sink has not had: start the relays again until 'auditrelay sinks list' shows nothing pending", shard, left)
		}
	}
	return nil
}

// undelivered returns the layout, and the undelivered events by the number of their log.
func undelivered(ctx context.Context, s store.Store, cfg config.Journal) (*layout, []uint64, error) {
	l, err := loadLayout(ctx, s.Table())
	if err != nil {
		return nil, nil, err
	}
	by := make([]uint64, l.Logs)
	for shard := range by {
		j, err := look(ctx, s, cfg, shard)
		if err == nil {
			by[shard], err = j.undelivered(ctx)
		}
		if err != nil {
			return nil, nil, err
		}
	}
	return l, by, nil
}

func (j *Journal) undelivered(ctx context.Context) (most uint64, err error) {
	state, err := j.state(ctx)
	if err != nil {
		return 0, err
	}
	newest := j.end.get().events
	start, err := j.markBefore(ctx, state.First)
	if err != nil {
		return 0, err
	}
	sinks, err := j.registered(ctx)
	if err != nil || len(sinks) == 0 {
		return newest - start.events, err
	}
	for _, sink := range sinks {
		at, why, err := j.position(ctx, sink, &state)
		if err != nil {
			return 0, err
		}
		if why != "" || at.pos < start.pos {
			at = start
		}
		if at.pos < state.End {
			most = max(most, newest-min(newest, at.events))
		}
	}
	return most, nil
}
