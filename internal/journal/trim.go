package journal

import (
	"context"
	"errors"
	"fmt"
	"sort"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/auditrelay/auditrelay/internal/ages"
	"github.com/auditrelay/auditrelay/internal/datadir"
	"github.com/auditrelay/auditrelay/internal/pause"
	"github.com/auditrelay/auditrelay/internal/positions"
)

// trimInterval is how often the journal looks for records older than the replay
// window, and for lost ones.
const trimInterval = time.Minute

func (j *Journal) trimLoop(ctx context.Context) {
	for pause.For(ctx, trimInterval) == nil {
		if err := j.Positions.Adopt(ctx); err != nil && ctx.Err() == nil {
			j.log.Warn("looking for further sinks failed; it is tried again", "error", err)
		}
		if _, err := j.trimAged(ctx, ages.Now()); err != nil && !errors.Is(err, errUncertain) && ctx.Err() == nil {
			j.log.Warn("trimming the journal failed; it is tried again", "error", err)
		}
		// The server may find damage while it runs, and drop the records behind it.
		if err := j.reportLosses(ctx); err != nil && ctx.Err() == nil {
			j.log.Warn("looking for lost records failed; it is tried again", "error", err)
		}
	}
}

// Trim removes the records acknowledged by every sink and stamped before the given time. It
// returns their number: 0 while one sink's position is uncertain. After a crash on the way,
// the next trim removes the rest.
func (j *Journal) Trim(ctx context.Context, before time.Time) (uint64, error) {
	return j.trim(ctx, func(ctx context.Context, free extent) (uint64, error) {
		return j.stampedBefore(ctx, free.first, free.end, before, time.Now())
	})
}

// trimAged removes acknowledged records beyond the replay window. It judges the records of
// this process by the monotonic clock, and only older ones by their stamps.
func (j *Journal) trimAged(ctx context.Context, now ages.Moment) (uint64, error) {
	return j.trim(ctx, func(ctx context.Context, free extent) (uint64, error) {
		j.ages.See(free.stream.LastSeq, now)
		keep := min(free.end, max(free.first, j.ages.OlderThan(j.cfg.ReplayWindow, now)+1))
		if keep > j.ages.Inherited() {
			return keep, nil
		}
		steady := j.ages.Steady(now)
		return j.stampedBefore(ctx, keep, min(free.end, j.ages.Inherited()+1), steady.Add(-j.cfg.ReplayWindow), steady)
	})
}

// extent holds the records [first, end) of the stream: all without a sink, otherwise those
// acknowledged by every sink.
type extent struct {
	first, end uint64
	stream     jetstream.StreamState
	sinks      bool // there is at least one
}

// trim removes the records before the result of choose.
func (j *Journal) trim(ctx context.Context, choose func(context.Context, extent) (keep uint64, err error)) (uint64, error) {
	j.trimming.Lock()
	defer j.trimming.Unlock()
	// No position may go back meanwhile.
	j.Losses.Lock()
	defer j.Losses.Unlock()
	delivered, info, err := j.standing(ctx)
	j.noteDoubt(err)
	if err != nil {
		j.fills.look(time.Now(), j.budget.Undelivered())
		return 0, err
	}
	state := info.State
	sinks := delivered != positions.Nobody
	had := delivered
	if !sinks { // nothing was delivered
		had = state.FirstSeq - 1
	}
	j.budget.Look(had, int64(info.State.Bytes))
	j.fills.look(time.Now(), j.budget.Undelivered())
	free := extent{first: state.FirstSeq, end: min(delivered, state.LastSeq) + 1, stream: state, sinks: sinks}
	if state.Msgs == 0 || free.end <= free.first {
		return 0, nil
	}
	keep, err := choose(ctx, free)
	if err != nil || keep <= free.first {
		return 0, err
	}
	j.conn.Watermarks.Raise(datadir.Trimmed, datadir.Watermark{Value: keep - 1}) // first: records missing below the watermark were trimmed, not lost
	if err := j.asks(ctx, keep); err != nil {                                    // its block is read, and may be cut off
		return 0, err
	}
	defer j.conn.Shrunk(j.names.events) // whatever the answer
	if err := j.stream.Purge(ctx, jetstream.WithPurgeSequence(keep)); err != nil {
		return 0, fmt.Errorf("trim the journal up to record %d: %w", keep, err)
	}
	return keep - free.first, nil
}

// errUncertain means nothing can be trimmed, as some sink's position is not known for
// certain.
var errUncertain = errors.New("not every sink's position is known for certain")

// standing is the newest record acknowledged by every known sink, and the stream's state,
// read afterwards. The error wraps errUncertain if a position could not be read.
func (j *Journal) standing(ctx context.Context) (uint64, *jetstream.StreamInfo, error) {
	lowest, err := j.Positions.Lowest(ctx)
	if err != nil {
		return 0, nil, fmt.Errorf("%w: %w", errUncertain, err)
	}
	newest, _ := j.Losses.History.Reach() // first: the stream grows meanwhile
	info, err := j.info(ctx)
	if err != nil {
		return 0, nil, err
	}
	if err := j.contradiction(lowest, newest, info); err != nil {
		return 0, nil, fmt.Errorf("%w: %w", errUncertain, err)
	}
	return lowest, info, nil
}

// contradiction says why the positions, and the newest record that was acknowledged, cannot
// belong to a stream in this state, or nil.
func (j *Journal) contradiction(lowest, newest uint64, info *jetstream.StreamInfo) error {
	last := info.State.LastSeq
	_, doubt := j.Losses.History.Reach()
	switch broken := j.commits.brokenBy(); {
	case broken != nil:
		return broken
	case doubt:
		return errors.New("the stream has to be compared with what is known of it")
	case info.Created.UnixNano() != j.made:
		return errors.New("the events' stream is another than the one that was opened")
	case last < newest:
		return fmt.Errorf("the stream ends at record %d, but record %d was acknowledged", last, newest)
	case lowest != positions.Nobody && lowest > last:
		return fmt.Errorf("the stream ends at record %d, but every sink has acknowledged record %d", last, lowest)
	}
	return nil
}

// noteDoubt logs once why trimming stopped, and once its resumption. trimming is held.
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
		msg, err := j.get(ctx, from+uint64(i))
		if err != nil && !errors.Is(err, jetstream.ErrMsgNotFound) {
			failed = err
		}
		return err != nil || !msg.Time.Before(t)
	})
	return from + uint64(n), failed
}

const (
	// walkRecords bounds the stamps in one trim, and walkAhead the stamps requested in
	// advance.
	walkRecords = 50_000
	walkAhead   = 1024
)

// stampedBefore is the first record in [from, end) to keep, where records stamped before
// a time go. It reads a bounded number of stamps; the next call goes on.
func (j *Journal) stampedBefore(ctx context.Context, from, end uint64, before, now time.Time) (uint64, error) {
	if from >= end {
		return from, nil
	}
	// Every sink has had the records before end. Only the last block may hold others.
	if err := j.asks(ctx, end); err != nil {
		return 0, err
	}
	prefix, read := ages.Prefix{Keep: from, Before: before, Now: now}, 0
	err := j.scan(ctx, from, true, jetstream.PullMaxMessages(walkAhead), func(_ jetstream.Msg, meta *jetstream.MsgMetadata) (bool, error) {
		if meta.Sequence.Stream >= end {
			return false, nil
		}
		read++
		return prefix.Add(meta.Sequence.Stream, meta.Timestamp) && read < walkRecords, nil
	})
	if err != nil {
		return 0, fmt.Errorf("read the stamps of records from %d on: %w", from, err)
	}
	return prefix.Keep, nil
}
