package disk

import (
	"context"
	"fmt"
	"time"

	"github.com/auditrelay/auditrelay/internal/store"
)

// group is what one write and one sync make durable: the drafts of one call, since the journal
// already gathers what many senders push.
type group struct {
	frames []byte // without positions and checksums, until the turn
	count  int
	first  store.Pos // set by a write that succeeded
}

// Append implements [store.Log].
func (l *Log) Append(ctx context.Context, drafts ...store.Draft) (store.Pos, error) {
	return l.append(ctx, nil, drafts)
}

// AppendAt implements [store.Log].
func (l *Log) AppendAt(ctx context.Context, after store.Pos, drafts ...store.Draft) (store.Pos, error) {
	return l.append(ctx, &after, drafts)
}

func (l *Log) append(ctx context.Context, after *store.Pos, drafts []store.Draft) (store.Pos, error) {
	if err := l.check(drafts...); err != nil {
		return 0, err
	}
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	g := l.group()
	for _, d := range drafts { // whose memory may change once the caller's context has ended
		g.add(d, 0)
	}
	if err := l.turn.during(ctx, func() error { return l.writeAt(after, g) }); err != nil {
		return 0, err
	}
	return g.first, nil
}

// writeAt writes a group, if the log ends with a position where one is given. The turn is held.
func (l *Log) writeAt(after *store.Pos, g *group) (err error) {
	if after != nil && l.end != *after { // end changes only in a turn
		err = fmt.Errorf("%w: the log ends with %d, not with %d", store.ErrConflict, l.end, *after)
	} else if err = l.write(g); err == nil {
		l.grow(g)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.spare = g.frames // its memory serves the next group
	return err
}

// Room returns nil if an append of so many bytes would find room now, on the disk as well. It
// makes the segment that such an append needs.
func (l *Log) Room(ctx context.Context, need int64) error {
	return l.turn.during(ctx, func() error { return l.room(need) })
}

func (l *Log) check(drafts ...store.Draft) error {
	limit := l.MaxRecord()
	for _, d := range drafts {
		if len(d.Key) > store.MaxKey || len(d.Key)+len(d.Data) > limit {
			return fmt.Errorf("%w: %d bytes with a key of %d, where %d and %d are taken",
				store.ErrTooLarge, len(d.Key)+len(d.Data), len(d.Key), limit, store.MaxKey)
		}
	}
	return nil
}

// group is a new one, in the memory of an earlier one.
func (l *Log) group() *group {
	l.mu.Lock()
	defer l.mu.Unlock()
	g := &group{frames: l.spare[:0]}
	l.spare = nil
	return g
}

// add adds a record of a time, in nanoseconds; 0 stands for the time of its write.
func (g *group) add(d store.Draft, at int64) {
	g.frames = appendFrame(g.frames, d, at)
	g.count++
}

// grow moves the log's end after a group that is durable. The turn is held.
func (l *Log) grow(g *group) {
	l.mu.Lock()
	defer l.mu.Unlock()
	g.first = l.end + 1
	l.end, l.reached = l.end+store.Pos(g.count), l.offset
	if !l.opts.Allocate {
		l.segments[len(l.segments)-1].size = l.offset
	}
	close(l.grown)
	l.grown = make(chan struct{})
}

// write makes the group durable. The turn is held.
//
// A crash before the sync leaves some of the records, which a start makes durable before
// it believes them. A crash between the sync and the mark leaves all of them, and so does
// one after the mark. Nobody was told in any of these cases.
func (l *Log) write(g *group) error {
	if g.count == 0 {
		return nil
	}
	if err := l.room(int64(len(g.frames))); err != nil {
		return err
	}
	l.tick()
	last := l.segments[len(l.segments)-1] // changes only in a turn
	finish(g.frames, last.seed, l.offset, l.end+1, l.end, l.newest)
	if _, err := l.f.WriteAt(g.frames, l.offset); err != nil {
		return l.unwrite(err)
	}
	if err := l.f.Sync(); err != nil {
		l.poisoned = true
		return fmt.Errorf("%w: sync %s: %w", store.ErrUnknown, l.path(last.base), err)
	}
	if !l.store.fs.Same(l.f, l.path(last.base)) {
		return l.lose(l.path(last.base))
	}
	return l.advance(l.end+store.Pos(g.count), last.base, l.offset+int64(len(g.frames)))
}

// tick has the newest time be the present one, unless the clock was set back, or the records
// are another store's and have their times. The turn is held.
func (l *Log) tick() {
	if now := time.Now(); now.After(l.newest) && !l.taking {
		l.newest = now.Round(0)
	}
}

// advance moves the end mark, and the place where the newest segment goes on.
func (l *Log) advance(end, base store.Pos, offset int64) error {
	if l.untold {
		_ = l.tell(l.first, base) // it was logged
	}
	if err := l.note(end, base, offset, l.first); err != nil {
		// The records are durable, but a start could take them for a torn write. They were
		// refused, so nothing may follow them in this segment.
		l.poisoned = true
		return fmt.Errorf("%w: %w", store.ErrUnknown, err)
	}
	l.offset = offset
	return nil
}

// note writes the end mark. The turn is held.
func (l *Log) note(end, base store.Pos, offset int64, first store.Pos) error {
	m := endMark{
		Log: l.id, Secret: l.secret, Boot: l.store.boot, End: end, Base: base, Offset: offset, Newest: l.newest.UnixNano(), First: first,
		Table: l.store.table.durable.durable.Load(),
	}
	l.scratch = m.append(l.scratch[:0])
	_, err := l.mark.write(markKey, l.scratch)
	return err
}

// unwrite takes back a write that failed, so that nothing of it stands after the next one. That
// goes to another segment, unless the file has to grow and the disk is full: so there is no room
// before writes succeed.
func (l *Log) unwrite(cause error) error {
	full := l.store.isFull(cause)
	if err := l.cut(l.f, l.offset, l.size); err != nil || l.opts.Allocate || !full {
		l.poisoned = true
	}
	if full {
		return fmt.Errorf("%w on the disk: %w", store.ErrFull, cause)
	}
	return fmt.Errorf("write to the log %s: %w", l.name, cause)
}

// cut removes everything from an offset on, and reserves the room again.
func (l *Log) cut(f file, offset, size int64) error {
	if err := f.Truncate(offset); err != nil {
		return err
	}
	if l.opts.Allocate {
		return f.Allocate(size)
	}
	return nil
}
