package deadletters

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/nats-io/nats.go/jetstream"
)

// From purgeFrom letters on, one purge removes them. One by one, each costs a sync.
const purgeFrom = 16

// Remove removes letters of one sink for good; sequences ascend. A missing letter is no
// error. Without a gap from the sink's oldest letter on, the removal costs a handful of
// syncs. A crash on the way leaves some of them, or brings them back until
// the server has synced.
func (s *Store) Remove(ctx context.Context, sink string, sequences []uint64) error {
	if len(sequences) >= purgeFrom {
		whole, err := s.areOldest(ctx, sink, sequences)
		if err != nil {
			return err
		}
		if whole {
			behind := sequences[len(sequences)-1] + 1
			if err := s.stream.Purge(ctx, jetstream.WithPurgeSubject(s.ofSink(sink)+">"), jetstream.WithPurgeSequence(behind)); err != nil {
				return fmt.Errorf("remove %d dead letters: %w", len(sequences), err)
			}
			s.count(ctx)
			return nil
		}
	}
	for _, sequence := range sequences {
		if err := s.removeOne(ctx, sequence); err != nil {
			return err
		}
	}
	s.count(ctx)
	return nil
}

func (s *Store) removeOne(ctx context.Context, sequence uint64) error {
	err := s.stream.DeleteMsg(ctx, sequence)
	if err == nil || errors.Is(err, jetstream.ErrMsgNotFound) {
		return nil
	}
	if _, ok, readErr := s.Get(ctx, sequence); readErr == nil && !ok {
		return nil // the server has several words for a missing letter
	}
	return fmt.Errorf("remove dead letter %d: %w", sequence, err)
}

// areOldest reports whether sequences has each letter of the sink up to the last of them.
// It reads all of these letters, as nothing else may be removed with them.
func (s *Store) areOldest(ctx context.Context, sink string, sequences []uint64) (bool, error) {
	subject, err := s.subjects(ctx, &Filter{Sink: sink})
	if err != nil || subject != s.ofSink(sink)+">" {
		return false, err
	}
	last, from := sequences[len(sequences)-1], uint64(1)
	for {
		msg, err := s.next(ctx, from, subject)
		if err != nil {
			return false, err
		}
		if msg == nil || msg.Sequence > last {
			return true, nil
		}
		if _, found := slices.BinarySearch(sequences, msg.Sequence); !found {
			return false, nil
		}
		from = msg.Sequence + 1
	}
}
