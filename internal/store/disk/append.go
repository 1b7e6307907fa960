package disk

import (
	"context"
	"fmt"
	"time"

	"github.com/auditrelay/auditrelay/internal/store"
)

// group is what one write and one sync make durable. Whoever gets the turn first writes it
// for all whose drafts are in it; while a sync runs, the next group gathers.
type group struct {
	frames []byte // without positions and checksums, until the turn
	count  int
	done   chan struct{}
	// first and err are set before done is closed.
	first store.Pos
	err   error
}

// Append implements [store.Log].
func (l *Log) Append(ctx context.Context, drafts ...store.Draft) (store.Pos, error) {
	g, at, err := l.join(ctx, drafts)
	if err != nil {
		return 0, err
	}
	select {
	case <-g.done:
	case l.turn.held <- struct{}{}:
		go l.flushTurn(g)
	case <-ctx.Done():
	}
	first, err := g.wait(ctx)
	return first + store.Pos(at), err
}

// flushTurn is flush for the holder of the turn, who gives it back. It has a goroutine of its
// own: a sync takes as long as the disk likes, and whoever appends waits no longer than their
// context lasts.
func (l *Log) flushTurn(g *group) {
	defer l.turn.unlock()
	l.flush(g)
}

// wait waits until the group is settled. Once ctx has ended nobody knows: the group may still
// be written.
func (g *group) wait(ctx context.Context) (store.Pos, error) {
	select {
	case <-g.done:
		return g.first, g.err
	case <-ctx.Done():
		return 0, fmt.Errorf("%w: the disk has not confirmed it: %w", store.ErrUnknown, ctx.Err())
	}
}

// AppendAt implements [store.Log].
func (l *Log) AppendAt(ctx context.Context, after store.Pos, drafts ...store.Draft) (store.Pos, error) {
	if err := l.check(drafts); err != nil {
		return 0, err
	}
	g := &group{done: make(chan struct{})}
	g.add(drafts) // whose memory may change once the caller's context has ended
	if err := l.turn.during(ctx, func() error { return l.writeAt(after, g) }); err != nil {
		return 0, err
	}
	return g.first, nil
}

// writeAt writes a group if the log ends with a position. The turn is held.
func (l *Log) writeAt(after store.Pos, g *group) error {
	l.flush(nil)
	err := error(nil)
	if l.end == after { // end changes only in a turn
		err = l.write(g)
	} else {
		err = fmt.Errorf("%w: the log ends with %d, not with %d", store.ErrConflict, l.end, after)
	}
	l.settle(g, err)
	return err
}

// Room returns nil if an append of so many bytes would find room now, on the disk as well. It
// makes the segment that such an append needs.
func (l *Log) Room(ctx context.Context, need int64) error {
	return l.turn.during(ctx, func() error { return l.room(need) })
}

func (l *Log) check(drafts []store.Draft) error {
	limit := l.MaxRecord()
	for _, d := range drafts {
		if len(d.Key) > store.MaxKey || len(d.Key)+len(d.Data) > limit {
			return fmt.Errorf("%w: %d bytes with a key of %d, where %d and %d are taken",
				store.ErrTooLarge, len(d.Key)+len(d.Data), len(d.Key), limit, store.MaxKey)
		}
	}
	return nil
}

// join adds the drafts to the group that the next turn writes. at is how many drafts of
// others stand before them in it.
func (l *Log) join(ctx context.Context, drafts []store.Draft) (g *group, at int, err error) {
	if err := l.check(drafts); err != nil {
		return nil, 0, err
	}
	if err := ctx.Err(); err != nil {
		return nil, 0, err
	}
	size := int64(0)
	for _, d := range drafts {
		size += frameSize(len(d.Key), len(d.Data))
	}
	for {
		l.mu.Lock()
		if l.closed {
			l.mu.Unlock()
			return nil, 0, store.ErrClosed
		}
		if g = l.pending; g == nil {
			g = &group{done: make(chan struct{}), frames: l.spare[:0]}
			l.pending, l.spare = g, nil
		}
		// A group fits into a segment. While the disk does not answer, groups of those who
		// gave up wait all the same, so that their memory needs a bound.
		if g.count == 0 || int64(len(g.frames))+size <= min(maxGroup, l.segmentSize()-dataStart) {
			at = g.count
			g.add(drafts)
			l.mu.Unlock()
			return g, at, nil
		}
		l.mu.Unlock()
		select {
		case <-g.done:
		case l.turn.held <- struct{}{}:
			go l.flushTurn(g)
		case <-ctx.Done():
			return nil, 0, ctx.Err()
		}
	}
}

// maxGroup bounds the frames of a group, except for a single append that is larger.
const maxGroup = 4 << 20

func (g *group) add(drafts []store.Draft) {
	for _, d := range drafts {
		g.frames = appendFrame(g.frames, d)
	}
	g.count += len(drafts)
}

// flush writes the pending group if it is g, or whatever it is for nil. The turn is held.
func (l *Log) flush(g *group) {
	l.mu.Lock()
	if l.pending == nil || g != nil && l.pending != g {
		l.mu.Unlock()
		return
	}
	g, l.pending = l.pending, nil
	l.mu.Unlock()
	l.settle(g, l.write(g))
}

// settle tells everybody who waits for the group how it ended. The turn is held.
func (l *Log) settle(g *group, err error) {
	g.err = err
	if err == nil {
		g.first = l.end + 1
		l.mu.Lock()
		l.segments[len(l.segments)-1].index.add(l.end+1, l.reached)
		l.end += store.Pos(g.count)
		l.reached = l.offset
		if !l.opts.Allocate {
			l.segments[len(l.segments)-1].size = l.offset
		}
		if !l.closed {
			close(l.grown)
			l.grown = make(chan struct{})
		}
		l.mu.Unlock()
	}
	close(g.done)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.spare = g.frames // its memory serves the next group
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
	if err := l.advance(l.end+store.Pos(g.count), last.base, l.offset+int64(len(g.frames))); err != nil {
		return err
	}
	if !l.opts.Allocate { // the end of a busy log is told now and then
		if err := l.remember(context.Background()); err != nil {
			l.log.Warn("the table was not told the end of a log, and will be told again", "log", l.name, "error", err)
		}
	}
	return nil
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
	m := endMark{log: l.id, secret: l.secret, boot: l.store.boot, end: end, base: base, offset: offset, newest: l.newest, first: l.first, table: l.store.table.durable.durable.Load()}
	l.scratch = m.encode(l.scratch[:0])
	if _, err := l.mark.write(markKey, l.scratch); err != nil {
		// The records are durable, but a start could take them for a torn write. The next
		// ones are written over them.
		return fmt.Errorf("%w: %w", store.ErrUnknown, err)
	}
	l.offset = offset
	return nil
}

// unwrite takes back a write that failed, so that nothing of it stands after the next one. That
// goes to another segment, unless the file has to grow and the disk is full: so there is no room
// before writes succeed.
func (l *Log) unwrite(cause error) error {
	if err := l.cut(l.f, l.offset, l.size); err != nil || l.opts.Allocate || !isFull(cause) {
		l.poisoned = true
	}
	if isFull(cause) {
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
