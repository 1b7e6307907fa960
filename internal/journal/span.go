package journal

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/auditrelay/auditrelay/internal/journal/record"
	"github.com/auditrelay/auditrelay/internal/store"
	"github.com/auditrelay/auditrelay/relay"
)

// ErrSpanEnd comes from a span's Next after its last record.
var ErrSpanEnd = errors.New("end of the span")

// Span reads the records of a stretch of time once. It keeps no position, so it does not
// hold up trimming; it skips and counts records trimmed meanwhile. It has relay.Source's
// methods, but its batches may be empty, as the filter may drop all events, and ErrSpanEnd
// ends it.
type Span struct {
	j     *Journal
	limit relay.BatchLimit
	keep  func(*relay.Event) bool

	first, next, end store.Pos      // records [next, end) are still to be read; owned by Next
	held             []store.Item   // from next on, read already; owned by Next
	open             *record.Reader // the record before next, if it is not read to its end; owned by Next
	given            relay.Position // the number of batches; owned by Next

	// Oldest is when the oldest kept record was committed. Cut means the span begins before
	// it, with records trimmed already.
	Oldest time.Time
	Cut    bool

	// Next counts these; only its caller's goroutine may read them.
	Events  uint64 // let through by the filter
	Missing uint64 // records trimmed before they could be read
	Corrupt uint64 // records that are damaged or lost; live delivery names them
}

// Span opens the records committed in [since, until); a zero until means now. It gives the
// events chosen by keep; a nil keep means all. The limit is as in [Journal.Source].
func (j *Journal) Span(ctx context.Context, since, until time.Time, limit relay.BatchLimit, keep func(*relay.Event) bool) (*Span, error) {
	state, err := j.state(ctx)
	if err != nil {
		return nil, err
	}
	s := &Span{j: j, limit: limit, keep: keep}
	if state.First > state.End {
		s.Cut = state.End > 0
		return s, nil
	}
	if s.Oldest, err = j.oldest.time(ctx, j.events, state.First); err != nil {
		return nil, err
	}
	s.Cut = state.First > 1 && since.Before(s.Oldest)
	s.first, s.end = state.First, state.End+1
	if s.first, err = j.seek(ctx, since, s.first, s.end); err != nil {
		return nil, err
	}
	if !until.IsZero() {
		if s.end, err = j.seek(ctx, until, s.first, s.end); err != nil {
			return nil, err
		}
	}
	s.next = s.first
	return s, nil
}

// seek is the first record in [from, end) of a time or later, or end.
func (j *Journal) seek(ctx context.Context, t time.Time, from, end store.Pos) (store.Pos, error) {
	at, err := j.events.Seek(ctx, t)
	if err != nil {
		return 0, fmt.Errorf("look for the journal's records of %s: %w", t.Format(time.RFC3339), err)
	}
	return min(max(at, from), end), nil
}

// Records returns how many of the span's records have been read, and how many there
// are.
func (s *Span) Records() (read, all uint64) {
	return uint64(s.next - s.first), uint64(s.end - s.first)
}

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
		if err := s.step(ctx); err != nil {
			return relay.Batch{}, err
		}
	}
	if len(events) == 0 && s.open == nil && s.next == s.end {
		return relay.Batch{}, ErrSpanEnd
	}
	s.given++ // a position of the log would not do: a large record is given in several batches
	return relay.Batch{Events: events, Position: s.given}, nil
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

// step opens the record at next, or passes over a gap.
func (s *Span) step(ctx context.Context) error {
	if len(s.held) == 0 {
		if err := s.read(ctx); err != nil {
			return err
		}
	}
	if len(s.held) == 0 { // the log went back, and has nothing there
		s.Missing += uint64(s.end - s.next)
		s.next = s.end
		return nil
	}
	item := s.held[0]
	s.held = s.held[1:]
	if gap := item.Gap; gap != nil {
		to := min(gap.To+1, s.end)
		if gap.Why == store.Trimmed {
			s.Missing += uint64(to - s.next)
		} else {
			s.Corrupt += uint64(to - s.next)
		}
		s.next = to
		return nil
	}
	s.next = item.Record.Pos + 1
	var err error
	if s.open, err = record.Open(item.Record.Data); err != nil {
		s.Corrupt++
	}
	return nil
}

// A span reads so many records at once, and about so many bytes of them.
const (
	spanRecords = 256
	spanBytes   = 1 << 20
)

// read reads the next records and gaps of the span.
func (s *Span) read(ctx context.Context) error {
	size := 0
	for item, err := range between(ctx, s.j.events, s.next, s.end) {
		if err != nil {
			return err
		}
		if item.Record != nil {
			r := *item.Record
			r.Data = slices.Clone(r.Data)
			item.Record, size = &r, size+len(r.Data)
		}
		s.held = append(s.held, item)
		if size >= spanBytes || len(s.held) == spanRecords {
			break
		}
	}
	return nil
}

// Ack does nothing: a span has no position to keep.
func (s *Span) Ack(context.Context, relay.Position) error { return nil }

// Records calls visit with each stored record in [from, end), in order, until visit
// returns false. It passes over positions without a record. The data is visit's until it
// returns; it may be of another form than this version's.
func (j *Journal) Records(ctx context.Context, from, end uint64, visit func(position uint64, data []byte) bool) error {
	for item, err := range between(ctx, j.events, store.Pos(max(from, 1)), store.Pos(end)) {
		if err != nil {
			return err
		}
		if r := item.Record; r != nil && !visit(uint64(r.Pos), r.Data) {
			return nil
		}
	}
	return nil
}
