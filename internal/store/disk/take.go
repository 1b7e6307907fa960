package disk

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/auditrelay/auditrelay/internal/store"
)

var _ store.Taker = (*Log)(nil)

// Take implements [store.Taker]. A crash in it does what one in an append does.
func (l *Log) Take(ctx context.Context, records ...store.Record) error {
	g := l.group()
	for i := range records {
		r := &records[i]
		if err := l.check(r.Draft); err != nil {
			return fmt.Errorf("position %d: %w", r.Pos, err)
		}
		g.add(r.Draft, r.Time.UnixNano())
	}
	after := records[0].Pos - 1
	return l.turn.during(ctx, func() error {
		l.takeTime(records[len(records)-1].Time)
		defer func() { l.taking = false }()
		return l.writeAt(&after, g)
	})
}

// takeTime has the newest time be that of another store's record, and no later one. The turn is
// held.
func (l *Log) takeTime(at time.Time) {
	l.taking = true
	if none := len(l.segments) == 1 && l.segments[0].base == l.end+1; none || at.After(l.newest) {
		l.newest = at
	}
}

// Pass implements [store.Taker]: another segment begins after the gap. A crash before it is
// there leaves the log as it was, and one after it leaves the log after the gap, since the
// name of the segment says where that is.
func (l *Log) Pass(ctx context.Context, gap store.Gap) error {
	return l.turn.during(ctx, func() error {
		if err := l.err(); err != nil {
			return err
		}
		if gap.From != l.end+1 {
			return fmt.Errorf("%w: the log ends with %d, and the gap begins with %d", store.ErrConflict, l.end, gap.From)
		}
		if gap.Why == store.Doubtful {
			older := slices.Clone(l.segments)
			older[len(older)-1].doubtful = gap.From
			l.mu.Lock()
			l.segments = older
			l.mu.Unlock()
		}
		l.taking = true
		defer func() { l.taking = false }()
		if err := l.roll(gap.To+1, l.segmentSize()); err != nil {
			return err
		}
		l.mu.Lock()
		l.end = gap.To
		l.mu.Unlock()
		return l.advance(gap.To, gap.To+1, l.offset)
	})
}
