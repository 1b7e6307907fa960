package disk

import (
	"context"
	"errors"
	"fmt"

	"github.com/auditrelay/auditrelay/internal/store"
)

// Trim implements [store.Log]. It drops whole segments, and never the newest one.
//
// The end mark with the first position kept is durable before the first file goes: a segment that
// is missing from there on is lost, and no reader is told that it was trimmed. A crash after the
// mark leaves files that the next start removes. The table is told before, too, should the mark be
// lost.
func (l *Log) Trim(ctx context.Context, before store.Pos) error {
	return l.turn.during(ctx, func() error { return l.trim(before) })
}

// trim is Trim in a turn.
func (l *Log) trim(before store.Pos) error {
	n := 0
	for n < len(l.segments)-1 && l.segments[n+1].base <= before {
		n++
	}
	if err := l.err(); err != nil || n == 0 {
		return err
	}
	gone, kept := l.segments[:n], l.segments[n:]
	first := max(l.first, kept[0].base) // which changes only in a turn
	err := l.note(l.end, kept[len(kept)-1].base, l.offset, first)
	if err == nil {
		err = l.mark.sync()
	}
	if err != nil {
		return fmt.Errorf("note a trim of the log %s: %w", l.name, err)
	}
	l.mu.Lock()
	l.first, l.segments = first, kept
	l.mu.Unlock()
	failed := l.remember(context.Background())
	for _, s := range gone {
		if err := l.store.fs.Remove(l.path(s.base)); err != nil && !isMissing(err) {
			failed = errors.Join(failed, err)
		}
	}
	return errors.Join(failed, l.store.fs.SyncDir(l.dir))
}
