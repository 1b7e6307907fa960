package disk

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/auditrelay/auditrelay/internal/store"
)

// Trim implements [store.Log]. It drops whole segments, and never the newest one.
//
// The end mark with the first position kept is durable before the first file goes: a segment that
// is missing from there on is lost, and no reader is told that it was trimmed. A crash after the
// mark leaves files that the next start removes. The table is told as well, should an earlier copy of the
// mark come back.
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
	told := binary.LittleEndian.AppendUint64(slices.Clone(l.id[:]), uint64(first))
	failed := l.store.table.PutLazy(context.Background(), firstPrefix+l.name, told, store.If{})
	for _, s := range gone {
		if err := l.store.fs.Remove(l.path(s.base)); err != nil && !isMissing(err) {
			failed = errors.Join(failed, err)
		}
	}
	return errors.Join(failed, l.store.fs.SyncDir(l.dir))
}

// firstPrefix begins the keys of lazy values with a log's id and the oldest position kept of it.
const firstPrefix = "log/"

// toldFirst is what the table was told of the log's oldest position, or 0.
func (l *Log) toldFirst() store.Pos {
	l.store.table.mu.Lock()
	v := l.store.table.entries[firstPrefix+l.name].data
	l.store.table.mu.Unlock()
	if len(v) != len(l.id)+8 || !bytes.Equal(v[:len(l.id)], l.id[:]) {
		return 0
	}
	return store.Pos(binary.LittleEndian.Uint64(v[len(l.id):]))
}
