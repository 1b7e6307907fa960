package credentials

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/auditrelay/auditrelay/internal/pause"
)

// start watches the bucket, and returns after its whole content was seen.
func (s *Store) start(ctx context.Context) error {
	watching, stop := context.WithCancel(context.WithoutCancel(ctx))
	s.stop = stop
	w, err := s.kv.WatchAll(watching)
	if err != nil {
		stop()
		return fmt.Errorf("watch the credentials bucket: %w", err)
	}
	if err := s.readAll(ctx, w); err != nil {
		stop()
		return fmt.Errorf("read the credentials bucket: %w", err)
	}
	if err := s.heal(ctx); err != nil {
		stop()
		return err
	}
	s.healed = true
	go s.follow(watching, w)
	return nil
}

// readAll takes the bucket's content; the watcher marks its end with nil.
func (s *Store) readAll(ctx context.Context, w jetstream.KeyWatcher) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case entry, ok := <-w.Updates():
			if !ok {
				return jetstream.ErrConsumerDeleted
			}
			if entry == nil {
				return nil
			}
			s.take(entry)
		}
	}
}

// follow applies the changes of other relays, until ctx ends. If the watcher gives
// up, for example after the server lost its consumer, a new one begins with the whole
// bucket; meanwhile the known credentials serve.
func (s *Store) follow(ctx context.Context, w jetstream.KeyWatcher) {
	defer close(s.done)
	for {
		for entry := range untilDone(ctx, w) {
			s.take(entry)
			if len(s.damaged) > 0 {
				// If the bucket is away, its damage stays, and the next start comes to
				// it.
				if err := s.heal(ctx); err != nil && ctx.Err() == nil {
					s.log.Warn("putting back a credential record failed", "error", err)
				}
			}
		}
		for w = nil; w == nil; {
			if pause.For(ctx, time.Second) != nil {
				return
			}
			// An error here means the server is away: the connection's owner reports
			// it.
			w, _ = s.kv.WatchAll(ctx)
		}
	}
}

// untilDone yields the watcher's entries until it is closed, or ctx ends.
func untilDone(ctx context.Context, w jetstream.KeyWatcher) func(func(jetstream.KeyValueEntry) bool) {
	return func(yield func(jetstream.KeyValueEntry) bool) {
		for {
			select {
			case <-ctx.Done():
				return
			case entry, ok := <-w.Updates():
				if !ok || entry != nil && !yield(entry) {
					return
				}
			}
		}
	}
}

// take applies one entry. An unreadable record does not pass for an empty one: the
// environment keeps the known one, and heal or the next change writes over it.
func (s *Store) take(entry jetstream.KeyValueEntry) {
	key := entry.Key()
	delete(s.damaged, key)
	delete(s.badRevision, key)
	if entry.Operation() != jetstream.KeyValuePut {
		// Somebody removed it, so its copy must not bring it back.
		if err := s.copies.remove(key); err != nil {
			s.log.Warn("removing the copy of a credential record failed", "key", key, "error", err)
		}
		s.apply(key, stored{revision: entry.Revision()})
		return
	}
	r, err := decodeRecord(entry.Value())
	if err == nil {
		s.apply(key, stored{r, entry.Revision()})
		return
	}
	s.damaged[key], s.badRevision[key] = err, entry.Revision()
}
