package journal

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/auditrelay/auditrelay/internal/retry"
	"github.com/auditrelay/auditrelay/internal/store"
)

// trimInterval is how often the journal looks for records older than the replay window.
const trimInterval = time.Minute

func (j *Journal) trimLoop(ctx context.Context) {
	for retry.Sleep(ctx, trimInterval) == nil {
		if _, err := j.Trim(ctx, j.now().Add(-j.cfg.ReplayWindow)); err != nil && !errors.Is(err, errUncertain) && ctx.Err() == nil {
			j.log.Warn("trimming the journal failed; it is tried again", "error", err)
		}
	}
}

// now is the earlier one of two times: the wall clock's, and the start's plus the time since
// then by the monotonic clock. So a clock that somebody sets ahead makes no record old. The
// records committed meanwhile have times in the future; they stay for longer, as far as there
// is room.
func (j *Journal) now() time.Time {
	wall, steady := time.Now().Round(0), j.opened.Round(0).Add(time.Since(j.opened))
	if wall.Before(steady) {
		return wall
	}
	return steady
}

// Trim removes the records that every sink has acknowledged and that were committed before a
// time, as far as the store can remove them. It returns their number: 0 while one sink's
// position is uncertain. After a crash on the way, the next trim removes the rest.
func (j *Journal) Trim(ctx context.Context, before time.Time) (uint64, error) {
	return j.trim(ctx, func(free extent) (store.Pos, error) {
		young, err := j.events.Seek(ctx, before)
		if err != nil {
			return 0, fmt.Errorf("look for the journal's records before %s: %w", before.Format(time.RFC3339), err)
		}
		return min(young, free.end, j.needed()), nil
	})
}

// KeepAfter has no record trimmed for its age that stands after a position, which through tells: who
// digests the records has come so far. Records give way to pushes all the same.
func (j *Journal) KeepAfter(through func() uint64) { j.spans.Store(&through) }

// needed is the first record that somebody has still to digest.
func (j *Journal) needed() store.Pos {
	if through := j.spans.Load(); through != nil {
		return store.Pos((*through)()) + 1
	}
	return math.MaxUint64
}

// extent holds the records [first, end) of the log: all without a sink, otherwise those
// acknowledged by every sink.
type extent struct {
	first, end store.Pos
	state      store.State
	sinks      bool // there is at least one
}

// trim removes the records before the result of choose.
func (j *Journal) trim(ctx context.Context, choose func(extent) (keep store.Pos, err error)) (uint64, error) {
	j.trimming.Lock()
	defer j.trimming.Unlock()
	free, err := j.standing(ctx)
	j.noteDoubt(err)
	if err != nil {
		j.fills.look(time.Now(), j.budget.undelivered())
		return 0, err
	}
	had := free.first - 1 // without a sink, nothing was delivered
	if free.sinks {
		had = free.end - 1
	}
	j.budget.look(uint64(had), free.state.Bytes)
	j.fills.look(time.Now(), j.budget.undelivered())
	if free.end <= free.first {
		return 0, nil
	}
	keep, err := choose(free)
	if err == nil && keep > free.first {
		keep, err = j.announce(ctx, keep, &free)
	}
	if err != nil || keep <= free.first {
		return 0, err
	}
	return j.drop(ctx, keep, &free.state)
}

// drop removes the records before a position, which every sink has acknowledged.
//
// The sinks' positions are durable first: otherwise a power cut could leave an older
// position, and a gap after it. A crash between the two steps leaves records that the next
// trim removes.
func (j *Journal) drop(ctx context.Context, keep store.Pos, was *store.State) (uint64, error) {
	// A position that was refused is of a sink that another relay has now. The one that stands in
	// the table was looked at.
	if err := j.table.Sync(ctx); err != nil && !errors.Is(err, store.ErrConflict) {
		return 0, fmt.Errorf("make the sinks' positions durable: %w", err)
	}
	if err := j.events.Trim(ctx, keep); err != nil {
		return 0, fmt.Errorf("trim the journal up to record %d: %w", keep, err)
	}
	now, err := j.state(ctx)
	if err != nil {
		return 0, err
	}
	j.trimmed.Store(uint64(now.First - 1))
	return uint64(now.First - was.First), nil
}

// standing is what may be trimmed.
func (j *Journal) standing(ctx context.Context) (extent, error) {
	state, err := j.state(ctx)
	if err != nil {
		return extent{}, err
	}
	lowest, sinks, err := j.lowest(ctx, &state)
	if err != nil {
		return extent{}, err
	}
	return extent{first: state.First, end: lowest + 1, state: state, sinks: sinks}, nil
}

// noteDoubt tells why trimming stopped, and of its resumption. trimming is held.
func (j *Journal) noteDoubt(err error) {
	if err != nil && !errors.Is(err, errUncertain) {
		return
	}
	j.doubts.Tell(j.log, err, "the journal is not trimmed until every sink's position is known; retire a sink that does not come back",
		"every sink's position is known; the journal is trimmed")
	blocked := 0.0
	if err != nil {
		blocked = 1
	}
	j.metrics.doubts.Set(blocked)
}
