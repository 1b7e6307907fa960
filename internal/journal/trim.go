package journal

import (
	"context"
	"errors"
	"fmt"
	"sort"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/auditrelay/auditrelay/internal/datadir"
	"github.com/auditrelay/auditrelay/internal/pause"
)

// trimInterval is how often the journal looks for records older than the replay
// window, and for lost ones.
const trimInterval = time.Minute

func (j *Journal) trimLoop(ctx context.Context) {
	for pause.For(ctx, trimInterval) == nil {
		if err := j.register.Adopt(ctx); err != nil && ctx.Err() == nil {
			j.log.Warn("looking for further sinks failed; it is tried again", "error", err)
		}
		if _, err := j.trimAged(ctx, thisMoment()); err != nil && !errors.Is(err, errUncertain) && ctx.Err() == nil {
			j.log.Warn("trimming the journal failed; it is tried again", "error", err)
		}
		// The server may find damage while it runs, and drop the records behind it.
		if err := j.reportLosses(ctx); err != nil && ctx.Err() == nil {
			j.log.Warn("looking for lost records failed; it is tried again", "error", err)
		}
	}
}

// Trim removes the records that every sink has acknowledged and whose stamps are
// before the given time. It returns how many it removed: none while one sink's
// position is uncertain. After a crash on the way, the next trim removes the rest.
func (j *Journal) Trim(ctx context.Context, before time.Time) (uint64, error) {
	return j.trim(ctx, func(ctx context.Context, free extent) (uint64, error) {
		return j.stampedBefore(ctx, free.first, free.end, before, time.Now())
	})
}

// trimAged removes acknowledged records beyond the replay window. It judges the
// records of this process by the monotonic clock, which never jumps, and only older
// ones by their stamps.
func (j *Journal) trimAged(ctx context.Context, now moment) (uint64, error) {
	return j.trim(ctx, func(ctx context.Context, free extent) (uint64, error) {
		j.ages.see(free.stream.LastSeq, now)
		keep := min(free.end, max(free.first, j.ages.olderThan(j.cfg.ReplayWindow, now)+1))
		if keep > j.ages.inherited() {
			return keep, nil
		}
		steady := j.ages.steady(now)
		return j.stampedBefore(ctx, keep, min(free.end, j.ages.inherited()+1), steady.Add(-j.cfg.ReplayWindow), steady)
	})
}

// extent holds the records [first, end) of the stream: those that every sink has
// acknowledged, or all where there is no sink.
type extent struct {
	first, end uint64
	stream     jetstream.StreamState
	sinks      bool // there is at least one
}

// trim removes the records before the one that choose returns.
func (j *Journal) trim(ctx context.Context, choose func(context.Context, extent) (keep uint64, err error)) (uint64, error) {
	j.trimming.Lock()
	defer j.trimming.Unlock()
	// So that no position is set back meanwhile.
	j.comparing.Lock()
	defer j.comparing.Unlock()
	delivered, info, err := j.standing(ctx)
	j.noteDoubt(err)
	if err != nil {
		return 0, err
	}
	state := info.State
	sinks := delivered != nobody
	had := delivered
	if !sinks { // nothing was delivered
		had = state.FirstSeq - 1
	}
	j.budget.Look(had, int64(info.State.Bytes))
	free := extent{first: state.FirstSeq, end: min(delivered, state.LastSeq) + 1, stream: state, sinks: sinks}
	if state.Msgs == 0 || free.end <= free.first {
		return 0, nil
	}
	keep, err := choose(ctx, free)
	if err != nil || keep <= free.first {
		return 0, err
	}
	j.conn.Watermarks.Raise(datadir.Trimmed, datadir.Watermark{Value: keep - 1}) // first: what is missing below the mark was trimmed, not lost
	if err := j.asks(ctx, keep); err != nil {                                    // its block is read, and may be cut off
		return 0, err
	}
	defer j.conn.Shrunk(j.names.events) // whatever the answer
	if err := j.stream.Purge(ctx, jetstream.WithPurgeSequence(keep)); err != nil {
		return 0, fmt.Errorf("trim the journal up to record %d: %w", keep, err)
	}
	return keep - free.first, nil
}

// noteDoubt logs once why trimming stopped, and once that it resumed. trimming is
// held.
func (j *Journal) noteDoubt(err error) {
	doubts := errors.Is(err, errUncertain)
	switch {
	case doubts && !j.doubts:
		j.log.Warn("the journal is not trimmed until every sink's position is known; retire a sink that does not come back", "error", err)
	case err == nil && j.doubts:
		j.log.Info("every sink's position is known; the journal is trimmed")
	case !doubts:
		return
	}
	j.doubts = doubts
	j.metrics.doubt(doubts)
}

// firstSince is the first record in [from, to) committed at or after t, or to. It
// searches by halves, as records are in the order of their commit.
func (j *Journal) firstSince(ctx context.Context, from, to uint64, t time.Time) (uint64, error) {
	var failed error
	n := sort.Search(int(to-from), func(i int) bool {
		if failed != nil {
			return true
		}
		if failed = j.asks(ctx, from+uint64(i)); failed != nil {
			return true
		}
		msg, err := j.stream.GetMsg(ctx, from+uint64(i), jetstream.WithGetMsgSubject(j.names.eventsSubject))
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			return true
		}
		if err != nil {
			failed = fmt.Errorf("read the time of record %d: %w", from+uint64(i), err)
			return true
		}
		return !msg.Time.Before(t)
	})
	return from + uint64(n), failed
}
