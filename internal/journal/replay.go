package journal

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/auditrelay/auditrelay/internal/pause"
	"github.com/auditrelay/auditrelay/internal/record"
	"github.com/auditrelay/auditrelay/internal/streamserver"
	"github.com/auditrelay/auditrelay/relay"
)

// ErrSpanEnd comes from a span's Next after its last record.
var ErrSpanEnd = errors.New("end of the span")

// spanTries bounds the requests for one record, RetryPause apart: together longer than
// a leader's change, or a replica's lag.
const spanTries = 50

// Span reads the records of a stretch of time once. It keeps no position, so it does not
// hold up trimming; it skips and counts records trimmed meanwhile. It has relay.Source's
// methods, but its batches may be empty, as the filter may drop all events, and ErrSpanEnd
// ends it.
type Span struct {
	j     *Journal
	limit relay.BatchLimit
	keep  func(*relay.Event) bool

	first, next, end uint64         // records [next, end) are still to be read; owned by Next
	open             *record.Reader // the record before next, if it is not read to its end; owned by Next

	// Oldest is when the oldest kept record was committed. Cut means the span begins before
	// it, with records trimmed already.
	Oldest time.Time
	Cut    bool

	// Next counts these; only its caller's goroutine may read them.
	Events  uint64 // let through by the filter
	Missing uint64 // records trimmed before they could be read
	Corrupt uint64 // unreadable records; live delivery sets them aside
}

// Span opens the records committed in [since, until) by the server's clock; a zero until
// means now. It gives the events chosen by keep; a nil keep means all. The limit is as in
// [Journal.Source].
func (j *Journal) Span(ctx context.Context, since, until time.Time, limit relay.BatchLimit, keep func(*relay.Event) bool) (*Span, error) {
	info, err := j.info(ctx)
	if err != nil {
		return nil, err
	}
	s := &Span{j: j, limit: limit, keep: keep}
	state := info.State
	if state.Msgs == 0 {
		s.Cut = state.LastSeq > 0
		return s, nil
	}
	s.Oldest = state.FirstTime
	s.Cut = state.FirstSeq > 1 && since.Before(state.FirstTime)
	s.first, s.end = state.FirstSeq, state.LastSeq+1
	if !until.IsZero() {
		if s.end, err = j.firstSince(ctx, s.first, s.end, until); err != nil {
			return nil, err
		}
	}
	if s.first, err = j.firstSince(ctx, s.first, s.end, since); err != nil {
		return nil, err
	}
	s.next = s.first
	return s, nil
}

// Records returns how many of the span's records have been read, and how many there
// are.
func (s *Span) Records() (read, all uint64) { return s.next - s.first, s.end - s.first }

// Next gives the next events chosen by keep, in order. It returns an empty batch once it
// has read the limit's bytes of others, so its caller sees progress.
func (s *Span) Next(ctx context.Context) (relay.Batch, error) {
	var events []relay.Event
	for bytes := 0; (s.open != nil || s.next < s.end) && len(events) < s.limit.Events && bytes < s.limit.Bytes; {
		if s.open != nil {
			var size int
			events, size = s.take(events, s.limit.Bytes-bytes)
			bytes += size
			continue
		}
		msg, err := s.read(ctx)
		if err != nil {
			return relay.Batch{}, err
		}
		if msg == nil { // nothing is left of it
			s.Missing += s.end - s.next
			s.next = s.end
			break
		}
		s.Missing += min(msg.Sequence, s.end) - s.next
		s.next = min(msg.Sequence+1, s.end)
		if msg.Sequence >= s.end {
			break
		}
		if s.open, err = record.Open(msg.Data); err != nil {
			s.Corrupt++
		}
	}
	if len(events) == 0 && s.open == nil && s.next == s.end {
		return relay.Batch{}, ErrSpanEnd
	}
	return relay.Batch{Events: events, Position: relay.Position(s.next - 1)}, nil
}

// take adds events of the open record, and returns the size of all it read.
func (s *Span) take(events []relay.Event, most int) ([]relay.Event, int) {
	piece, size, err := s.open.Next(nil, max(1, min(most, record.PieceBytes)))
	if err != nil {
		s.Corrupt++
	}
	for i := range piece {
		if s.keep == nil || s.keep(&piece[i]) {
			s.Events++
			events = append(events, piece[i])
		}
	}
	if err != nil || s.open.Done() {
		s.open = nil
	}
	return events, size
}

// read gets the first record at or after next, or nil if there is none. It asks more
// than once before it says so: a replica may lag, and a leader may change.
func (s *Span) read(ctx context.Context) (*jetstream.RawStreamMsg, error) {
	if err := s.j.asks(ctx, s.next); err != nil {
		return nil, err
	}
	for try := 1; ; try++ {
		msg, err := s.j.stream.GetMsg(ctx, s.next, jetstream.WithGetMsgSubject(s.j.names.eventsSubject))
		if err == nil {
			return msg, nil
		}
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			info, infoErr := s.j.stream.Info(ctx)
			if try == spanTries || infoErr == nil && (info.State.Msgs == 0 || info.State.FirstSeq >= s.end) {
				return nil, nil //nolint:nilnil // a missing record is no error
			}
		} else if try == spanTries {
			return nil, fmt.Errorf("read record %d: %w", s.next, err)
		}
		if err := pause.For(ctx, streamserver.RetryPause); err != nil {
			return nil, err
		}
	}
}

// Ack does nothing: a span has no position to keep.
func (s *Span) Ack(context.Context, relay.Position) error { return nil }
