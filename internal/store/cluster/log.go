package cluster

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/auditrelay/auditrelay/internal/store"
)

// Log is one stream.
type Log struct {
	store  *Store
	name   string
	stream string
	note   *noteFile
	known  known

	comparing sync.Mutex
	current   atomic.Pointer[meta]

	// whole is held for reading by appends of one batch, and for writing by those of
	// several, which have to stay together.
	whole sync.RWMutex
	// sending is held while messages are stamped and handed to the connection, so that
	// times grow with positions.
	sending sync.Mutex
	stamp   int64 // of the newest message; guarded by sending

	tail    tail
	recent  recent
	polling sync.Mutex
	polled  time.Time // guarded by polling
}

var _ store.Log = (*Log)(nil)

func (l *Log) meta() *meta { return l.current.Load() }

// now is a time for a message, no earlier than any before it. sending is held.
func (l *Log) now() int64 {
	l.stamp = max(l.stamp, time.Now().UnixNano())
	return l.stamp
}

// MaxRecord implements [store.Log]. After a reconnect the server may be one that takes less.
func (l *Log) MaxRecord() int { return l.store.maxPayload() - headerRoom }

// State implements [store.Log].
func (l *Log) State(ctx context.Context) (store.State, error) {
	info, err := l.look(ctx)
	if err != nil {
		return store.State{}, err
	}
	m := l.meta()
	return store.State{
		ID: store.ID{Log: m.ID}, First: m.Trimmed + 1,
		End: m.end(info.State.LastSeq), Bytes: int64(info.State.Bytes),
	}, nil
}

// look reads the state of the stream, and what others wrote about the log meanwhile.
func (l *Log) look(ctx context.Context) (*jetstream.StreamInfo, error) {
	info, err := l.store.info(ctx, l.stream)
	if err != nil {
		return nil, err
	}
	if err := l.refresh(ctx); err != nil {
		return nil, err
	}
	newest, _ := l.known.suspects()
	if _, ahead := l.known.isAhead(); ahead || l.meta().end(info.State.LastSeq) < newest.Pos || info.Created.UnixNano() != l.meta().Created {
		if err := l.compare(ctx); err != nil {
			return nil, err
		}
		if info, err = l.store.info(ctx, l.stream); err != nil {
			return nil, err
		}
	}
	l.tail.reach(l.meta().end(info.State.LastSeq))
	return info, nil
}

// refresh takes over what another process wrote about the log. Where the table lost what this one
// knows, that is written again, before others count positions in another way.
func (l *Log) refresh(ctx context.Context) error {
	m, ok, err := l.loadMeta(ctx)
	if err != nil || !ok {
		return err
	}
	now := l.meta()
	switch {
	case m.isOlder(now):
		return l.changeMeta(ctx, func(*meta) {})
	case m.rev > now.rev, now.isOlder(&m):
		_, err = l.become(now, &m)
	}
	return err
}

// Trim implements [store.Log]. A crash before the purge leaves messages below the mark,
// which nobody reads, and which the next trim drops.
func (l *Log) Trim(ctx context.Context, before store.Pos) error {
	info, err := l.look(ctx)
	if err != nil {
		return err
	}
	before = min(before, l.meta().end(info.State.LastSeq)+1)
	if before > l.meta().Trimmed+1 {
		if err := l.changeMeta(ctx, func(m *meta) { m.Trimmed = max(m.Trimmed, before-1) }); err != nil {
			return fmt.Errorf("note the trim of the log %s: %w", l.name, err)
		}
	}
	at := l.meta().find(l.meta().Trimmed + 1)
	for at.lost != "" { // up to the next turn
		at = l.meta().find(at.until + 1)
	}
	if at.seq <= info.State.FirstSeq {
		return nil
	}
	handle, err := l.store.js.Stream(ctx, l.stream)
	if err == nil {
		err = handle.Purge(ctx, jetstream.WithPurgeSequence(at.seq))
	}
	if err != nil {
		return fmt.Errorf("trim the log %s: %w", l.name, err)
	}
	return nil
}

// Seek implements [store.Log], by halves: times grow with positions.
func (l *Log) Seek(ctx context.Context, t time.Time) (store.Pos, error) {
	state, err := l.State(ctx)
	if err != nil {
		return 0, err
	}
	low, high := state.First, state.End+1
	for low < high {
		middle := low + (high-low)/2
		pos, at, err := l.timeFrom(ctx, middle, high)
		if err != nil {
			return 0, err
		}
		switch {
		case pos >= high || !at.Before(t):
			high = middle
		default:
			low = pos + 1
		}
	}
	pos, _, err := l.timeFrom(ctx, low, state.End+1)
	return pos, err
}

// timeFrom returns the first record at or after a position, or end.
func (l *Log) timeFrom(ctx context.Context, pos, end store.Pos) (store.Pos, time.Time, error) {
	for pos < end {
		at := l.meta().find(pos)
		if at.lost != "" {
			pos = at.until + 1
			continue
		}
		m, err := l.store.next(ctx, l.stream, at.seq)
		if errors.Is(err, errMissing) {
			return end, time.Time{}, nil
		}
		if err != nil {
			return 0, time.Time{}, err
		}
		found, ok := l.meta().pos(m.Seq)
		if f, err := decode(l.stream, m.Data); ok && err == nil {
			return min(found, end), time.Unix(0, f.time), nil
		}
		pos = max(pos, found) + 1
	}
	return end, time.Time{}, nil
}

// Scrub implements [store.Log]. Whether the servers read from their media is theirs to say.
func (l *Log) Scrub(ctx context.Context) iter.Seq2[store.Gap, error] {
	return func(yield func(store.Gap, error) bool) {
		if err := l.refresh(ctx); err != nil {
			yield(store.Gap{}, err)
			return
		}
		for item, err := range l.Read(ctx, l.meta().Trimmed+1, false) {
			switch {
			case err != nil:
				yield(store.Gap{}, err)
				return
			case item.Gap != nil && item.Gap.Why != store.Trimmed:
				if !yield(*item.Gap, nil) {
					return
				}
			}
		}
	}
}

// tail tells those who follow a log that it has grown.
type tail struct {
	mu    sync.Mutex // guards the fields below
	end   store.Pos
	grown chan struct{} // closed at the next growth
}

// reach notes an end of the log.
func (t *tail) reach(end store.Pos) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if end <= t.end {
		return
	}
	close(t.grown)
	t.end, t.grown = end, make(chan struct{})
}

// beyond returns the end, and a channel that is closed when it is beyond that.
func (t *tail) beyond() (store.Pos, <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.end, t.grown
}
