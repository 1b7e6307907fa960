package journal

import (
	"context"
	"errors"
	"fmt"
	"sort"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/auditrelay/auditrelay/internal/streams"
)

// trimInterval is how often the journal looks for what it may let go.
const trimInterval = time.Minute

func (j *Journal) trimLoop(ctx context.Context) {
	defer close(j.done)
	for streams.Pause(ctx, trimInterval) == nil {
		if _, err := j.Trim(ctx, time.Now().Add(-j.cfg.ReplayWindow)); err != nil && ctx.Err() == nil {
			j.log.Warn("trimming the journal failed; it is tried again", "error", err)
		}
		// The server may find damage while it runs, and give up what is behind it.
		if err := j.reportLosses(ctx); err != nil && ctx.Err() == nil {
			j.log.Warn("looking for lost records failed; it is tried again", "error", err)
		}
	}
}

// Trim lets go of the records that every sink has acknowledged and that were
// committed before the given time. It returns how many records went. A crash
// on the way leaves some that the next trim takes.
func (j *Journal) Trim(ctx context.Context, before time.Time) (uint64, error) {
	delivered, err := j.delivered(ctx)
	if err != nil {
		return 0, err
	}
	info, err := j.stream.Info(ctx)
	if err != nil {
		return 0, fmt.Errorf("read the journal's state: %w", err)
	}
	first := info.State.FirstSeq
	last := min(delivered, info.State.LastSeq)
	if info.State.Msgs == 0 || last < first || !info.State.FirstTime.Before(before) {
		return 0, nil
	}
	keep, err := j.firstSince(ctx, first, last+1, before)
	if err != nil || keep == first {
		return 0, err
	}
	j.conn.marks.raise(markTrimmed, noted{value: keep - 1}) // first: what is gone below it was let go
	if err := j.stream.Purge(ctx, jetstream.WithPurgeSequence(keep)); err != nil {
		return 0, fmt.Errorf("trim the journal up to record %d: %w", keep, err)
	}
	return keep - first, nil
}

// delivered is the newest record that every sink has acknowledged. Sinks that
// are no longer configured count, until their position is removed: they may
// come back.
func (j *Journal) delivered(ctx context.Context) (uint64, error) {
	lowest := ^uint64(0)
	list := j.stream.ListConsumers(ctx)
	for c := range list.Info() {
		if strings.HasPrefix(c.Name, consumerPrefix) {
			lowest = min(lowest, c.AckFloor.Stream)
		}
	}
	if err := list.Err(); err != nil && !errors.Is(err, jetstream.ErrEndOfData) {
		return 0, fmt.Errorf("list the sinks' positions: %w", err)
	}
	return lowest, nil
}

// firstSince is the first record in [from, to) that was committed at or after
// t, or to. Records are in the order of their commit, so it can be searched by
// halves.
func (j *Journal) firstSince(ctx context.Context, from, to uint64, t time.Time) (uint64, error) {
	var failed error
	n := sort.Search(int(to-from), func(i int) bool {
		if failed != nil {
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
