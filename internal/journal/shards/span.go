package shards

import (
	"context"
	"errors"
	"time"

	"github.com/auditrelay/auditrelay/internal/journal"
	"github.com/auditrelay/auditrelay/relay"
)

// Span is a [journal.Span] of all logs, one after the other.
type Span struct {
	logs  []*journal.Span
	at    int            // the log that is read; owned by Next
	given relay.Position // the number of batches; owned by Next

	// These are as those of a [journal.Span], over all logs.
	Oldest                   time.Time
	Cut                      bool
	Events, Missing, Corrupt uint64
}

// Span opens the records of a time in all logs: see [journal.Journal.Span].
func (s *Set) Span(ctx context.Context, since, until time.Time, limit relay.BatchLimit, keep func(*relay.Event) bool) (*Span, error) {
	all := &Span{}
	for _, j := range s.logs {
		one, err := j.Span(ctx, since, until, limit, keep)
		if err != nil {
			return nil, err
		}
		all.logs = append(all.logs, one)
		all.Oldest, all.Cut = earlier(all.Oldest, one.Oldest), all.Cut || one.Cut
	}
	return all, nil
}

// Next is [journal.Span.Next].
func (s *Span) Next(ctx context.Context) (relay.Batch, error) {
	for ; s.at < len(s.logs); s.at++ {
		batch, err := s.logs[s.at].Next(ctx)
		s.count()
		if !errors.Is(err, journal.ErrSpanEnd) {
			s.given++
			batch.Position = s.given
			return batch, err
		}
	}
	return relay.Batch{}, journal.ErrSpanEnd
}

func (s *Span) count() {
	s.Events, s.Missing, s.Corrupt = 0, 0, 0
	for _, one := range s.logs {
		s.Events, s.Missing, s.Corrupt = s.Events+one.Events, s.Missing+one.Missing, s.Corrupt+one.Corrupt
	}
}

// Records is [journal.Span.Records].
func (s *Span) Records() (read, all uint64) {
	for _, one := range s.logs {
		r, a := one.Records()
		read, all = read+r, all+a
	}
	return read, all
}

// Ack does nothing: a span has no position to keep.
func (s *Span) Ack(context.Context, relay.Position) error { return nil }
