package disk

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/auditrelay/auditrelay/internal/store"
)

// Trim implements [store.Log]. It drops whole segments, and never the newest one.
//
// The end mark with the first position kept is durable before the first file goes: a segment that
// is missing from there on is lost, and no reader is told that it was trimmed. A crash after the
// mark leaves files that the next start removes. The table is told as well.
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
	failed := l.tell(first, kept[len(kept)-1].base)
	for _, s := range gone {
		if err := l.store.fs.Remove(l.path(s.base)); err != nil && !isMissing(err) {
			failed = errors.Join(failed, err)
		}
	}
	return errors.Join(failed, l.store.fs.SyncDir(l.dir))
}

// toldPrefix begins the keys of the lazy values that the table is told of the logs.
const toldPrefix = "log/"

// told is what the table knows of a log, should its end mark be lost or be an earlier copy. It is
// never ahead of the log.
type told struct {
	Log   [16]byte  // zero if the table knows nothing
	First store.Pos // the oldest position kept
	Base  store.Pos // of the newest segment
}

// tell tells the table, and has it durable: together with the end mark, which may be lost as well, it
// says which segments there were. Where that fails, the next append tells it. The turn is held.
func (l *Log) tell(first, base store.Pos) error {
	v, _ := binary.Append(nil, binary.LittleEndian, told{l.id, first, base}) // whose size is known
	ctx, table := context.Background(), l.store.table
	err := table.PutLazy(ctx, toldPrefix+l.name, v, store.If{})
	if err == nil {
		err = table.Sync(ctx)
	}
	l.untold = err != nil
	return err
}

// told is what the table was told.
func (l *Log) told() (t told) {
	l.store.table.mu.Lock()
	v := l.store.table.entries[toldPrefix+l.name].data
	l.store.table.mu.Unlock()
	if n, err := binary.Decode(v, binary.LittleEndian, &t); err != nil || n != len(v) {
		return told{}
	}
	return t
}
