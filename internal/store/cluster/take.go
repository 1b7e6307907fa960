package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/auditrelay/auditrelay/internal/store"
)

var _ store.Taker = (*Log)(nil)

// maxTurns bounds the gaps of a log that is taken over: each relay has all of them in its note.
const maxTurns = 500

// Take implements [store.Taker]. A crash between two batches leaves the first.
func (l *Log) Take(ctx context.Context, records ...store.Record) error {
	after := records[0].Pos - 1
	_, err := l.append(ctx, &after, records)
	return err
}

// Pass implements [store.Taker]: the gap is a turn. A crash before it is in the table leaves
// the log as it was, and one after it leaves the log after the gap.
func (l *Log) Pass(ctx context.Context, gap store.Gap) error {
	l.whole.Lock()
	defer l.whole.Unlock()
	info, err := l.look(ctx)
	if err != nil {
		return err
	}
	if end := l.meta().end(info.State.LastSeq); gap.From != end+1 {
		return fmt.Errorf("%w: the log %s ends with %d, and the gap begins with %d", store.ErrConflict, l.name, end, gap.From)
	}
	if n := len(l.meta().Turns); n >= maxTurns {
		return fmt.Errorf("the log %s has more than %d gaps, and a cluster cannot keep them", l.name, n)
	}
	err = l.changeMeta(ctx, func(m *meta) {
		m.rewind(gap.From-1, gap.To, info.State.LastSeq+1)
		m.Turns[len(m.Turns)-1].Why = gap.Why
	})
	if err != nil {
		return fmt.Errorf("note a gap of the log %s: %w", l.name, err)
	}
	return nil
}

// Logs implements [store.Store], as the table knows them.
func (s *Store) Logs(ctx context.Context) (logs []string, err error) {
	for seq := uint64(1); ; {
		got, err := s.nextOf(ctx, s.table.stream, seq, s.table.stream+".log.>")
		if errors.Is(err, errMissing) {
			slices.Sort(logs)
			return logs, nil
		}
		if err != nil {
			return nil, fmt.Errorf("list the logs of the store: %w", err)
		}
		if v, err := s.table.value(got); err == nil {
			logs = append(logs, v.Key)
		}
		seq = got.Seq + 1
	}
}
