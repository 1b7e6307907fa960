package disk

import (
	"context"
	"encoding/binary"
	"errors"

	"github.com/auditrelay/auditrelay/internal/store"
)

// Trim implements [store.Log]. It drops whole segments, and never the newest one.
//
// The mark of the first position kept is durable before the first file goes: a segment that
// is missing from there on is lost, and no reader is told that it was trimmed. A crash
// after the mark leaves files that the next start removes.
func (l *Log) Trim(ctx context.Context, before store.Pos) error {
	return l.turn.during(ctx, func() error { return l.trim(before) })
}

// trim is Trim in a turn.
func (l *Log) trim(before store.Pos) error {
	n := 0
	for n < len(l.segments)-1 && l.segments[n+1].base <= before {
		n++
	}
	if n == 0 {
		return nil
	}
	gone, kept := l.segments[:n], l.segments[n:]
	if err := l.trimmed.put(binary.LittleEndian.AppendUint64(nil, uint64(kept[0].base))); err != nil {
		return err
	}
	l.mu.Lock()
	l.first, l.segments = max(l.first, kept[0].base), kept
	l.mu.Unlock()
	// The end mark says it, too, should the other one be lost.
	failed := l.advance(l.end, kept[len(kept)-1].base, l.offset)
	for _, s := range gone {
		if err := l.store.fs.Remove(l.path(s.base)); err != nil && !isMissing(err) {
			failed = errors.Join(failed, err)
		}
	}
	return errors.Join(failed, l.store.fs.SyncDir(l.dir))
}

// parseFirst is the oldest position kept, or 0 where that is not known.
func parseFirst(value []byte) store.Pos {
	if len(value) != 8 {
		return 0
	}
	return store.Pos(binary.LittleEndian.Uint64(value))
}
