package audit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"sync/atomic"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/auditrelay/auditrelay/internal/store"
)

// The names of the trail's two logs in a store.
const (
	EntriesLog     = "trail.entries"
	CheckpointsLog = "trail.checkpoints"
)

// The kinds of the entries' records. The record of a checkpoint is a keptCheckpoint, as JSON.
const (
	// kindPlain is an entry's record, and kindZstd the same compressed. Its key is the
	// entry's resource.
	kindPlain, kindZstd uint8 = 1, 2
	// kindLost stands in the place of an entry that was lost from the end of the log, so that
	// no other entry gets its index. It has no data.
	kindLost uint8 = 3

	kindCheckpoint uint8 = 1
)

// Reader reads the two logs of a trail. It checks no signature; a [Trail] does, and has
// readers pass over what it found to be damaged. Its methods may be called concurrently.
type Reader struct {
	// Set before opened is closed, and not changed after. A log is nil where there is none.
	entries, checkpoints store.Log
	codec                *codec
	files                Files         // nil for none
	tried, opened        chan struct{} // closed once the trail was to be read, and once it was, and may be used
	still                bool          // nobody appends, and the logs cannot be followed

	view atomic.Pointer[view] // empty before the trail was read
	// suspect, where set, is told of anything that is not as it should be.
	suspect func(what string)
}

// OpenReader opens the trail in a store that was opened for reading only. No new entries come.
func OpenReader(ctx context.Context, s store.Store) (*Reader, error) {
	r := &Reader{codec: newCodec(), tried: make(chan struct{}), opened: make(chan struct{}), still: true, suspect: func(string) {}}
	r.view.Store(&view{})
	close(r.tried)
	close(r.opened)
	return r, r.open(ctx, s)
}

// open opens the two logs. A store that was opened for reading only makes none.
func (r *Reader) open(ctx context.Context, s store.Store) error {
	for name, log := range map[string]*store.Log{EntriesLog: &r.entries, CheckpointsLog: &r.checkpoints} {
		opened, err := s.Log(ctx, name, store.Options{})
		switch {
		case err == nil:
			*log = opened
		case !r.still || !errors.Is(err, fs.ErrNotExist):
			return fmt.Errorf("open the logs of the audit trail: %w", err)
		}
	}
	return nil
}

// Recorded is an entry as the trail has it.
type Recorded struct {
	Entry
	// Record is the entry's canonical JSON, as it is now.
	Record []byte
	// Leaf is the hash of its Merkle leaf.
	Leaf tlog.Hash
	// Unsound: the entry is unlike the signed one, or was when the trail was read back
	// last. It proves nothing.
	Unsound bool
}

// Get returns one entry. ErrMissing says there is none under the index, or no readable one.
func (r *Reader) Get(ctx context.Context, index int64) (Recorded, error) {
	if err := r.isOpen(ctx); err != nil {
		return Recorded{}, err
	}
	if e, ok := r.copyOf(index); ok {
		return e, nil
	}
	e, err := Recorded{}, fmt.Errorf("%w: entry %d", ErrMissing, index)
	if index < 0 {
		return e, err
	}
	_, failed := each(ctx, r.entries, store.Pos(index)+1, func(item store.Item) error {
		if item.Record != nil {
			e, err = r.recorded(item.Record)
		}
		return errEnd
	})
	if failed != nil && !errors.Is(failed, errEnd) {
		return Recorded{}, fmt.Errorf("read entry %d: %w", index, failed)
	}
	return e, err
}

// recorded decodes a record. ErrMissing stands for the place of a lost entry.
func (r *Reader) recorded(rec *store.Record) (Recorded, error) {
	index := indexOf(rec)
	if e, ok := r.copyOf(index); ok {
		return e, nil
	}
	e, err := r.codec.open(rec)
	if err != nil {
		return Recorded{}, err
	}
	e.Record, e.Unsound = bytes.Clone(e.Record), contains(r.view.Load().passed, index)
	return e, nil
}

// indexOf is the index of the entry in a record.
func indexOf(rec *store.Record) int64 { return int64(rec.Pos) - 1 }

// Tail calls handle with each readable entry from index from on, in order. It calls
// caughtUp after the last one, now and at each later end, with the number of
// entries there are, and waits for new ones until ctx ends. The errors of both end it; so
// does an outage of the store.
func (r *Reader) Tail(ctx context.Context, from int64, handle func(Recorded) error, caughtUp func(end int64) error) error {
	if err := r.isOpen(ctx); err != nil {
		return err
	}
	return r.follow(ctx, r.entries, store.Pos(max(from, 0))+1,
		func(item store.Item) error { return r.give(item, handle) },
		func(end store.Pos) error { return caughtUp(int64(end)) })
}

// give hands over the entries of an item. Those in a gap are read from the files, as far as
// they are there.
func (r *Reader) give(item store.Item, handle func(Recorded) error) error {
	if item.Gap != nil {
		return r.fromFiles(int64(item.Gap.From)-1, int64(item.Gap.To), handle)
	}
	e, err := r.recorded(item.Record)
	switch {
	case errors.Is(err, ErrMissing):
		return nil
	case errors.Is(err, ErrDamaged):
		if !contains(r.view.Load().passed, indexOf(item.Record)) {
			r.suspect(err.Error())
		}
		return nil // the trail names it
	case err != nil:
		return err
	}
	return handle(e)
}

// Each is Tail up to the trail's end as it is now.
func (r *Reader) Each(ctx context.Context, from int64, handle func(Recorded) error) error {
	err := r.Tail(ctx, from, handle, func(int64) error { return errEnd })
	if errors.Is(err, errEnd) {
		return nil
	}
	return err
}

var errEnd = errors.New("the trail has no more entries")

// Size is 0: no entry is added while a trail is only read.
func (r *Reader) Size() int64 { return 0 }

// Checkpoints calls handle with each kept checkpoint from the number from on, in order,
// passing over unreadable ones and bad signatures. A good signature may still be a
// stranger's: see [Trail.Generations]. It calls caughtUp after the last one, now and at each
// later end, and waits for new ones until ctx ends. The errors of both end it.
func (r *Reader) Checkpoints(ctx context.Context, from uint64, handle func(Kept) error, caughtUp func() error) error {
	if err := r.isOpen(ctx); err != nil {
		return err
	}
	return r.follow(ctx, r.checkpoints, store.Pos(max(from, 1)), func(item store.Item) error {
		if item.Gap != nil {
			return nil
		}
		c, err := decodeKept(item.Record)
		if err != nil {
			return nil //nolint:nilerr // Verify names it
		}
		return handle(c)
	}, func(store.Pos) error { return caughtUp() })
}

// follow calls handle with each item of a log from a position on, and caughtUp with the end of
// the log whenever it has come there. The errors of both end it, and so does ctx.
func (r *Reader) follow(ctx context.Context, log store.Log, from store.Pos, handle func(store.Item) error, caughtUp func(end store.Pos) error) error {
	for {
		next, err := each(ctx, log, from, handle)
		if err == nil {
			err = caughtUp(next - 1)
		}
		if err == nil {
			err = r.wait(ctx, log, next)
		}
		if err != nil {
			return err
		}
		from = next
	}
}

// wait returns once a log has a position.
func (r *Reader) wait(ctx context.Context, log store.Log, pos store.Pos) error {
	if r.still || log == nil {
		<-ctx.Done()
		return ctx.Err()
	}
	for _, err := range log.Read(ctx, pos, true) {
		if err != nil {
			return fmt.Errorf("follow the audit trail: %w", err)
		}
		return nil
	}
	return fmt.Errorf("follow the audit trail: %w", ctx.Err())
}

// each calls handle with each item of a log from a position on, and returns the position
// after the last one.
func each(ctx context.Context, log store.Log, from store.Pos, handle func(store.Item) error) (next store.Pos, err error) {
	next = from
	if log == nil {
		return next, nil
	}
	for item, err := range log.Read(ctx, from, false) {
		if err != nil {
			return next, fmt.Errorf("read audit trail: %w", err)
		}
		if err := handle(item); err != nil {
			return next, err
		}
		if item.Gap != nil {
			next = item.Gap.To + 1
			continue
		}
		next = item.Record.Pos + 1
	}
	return next, nil
}
