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

// Span reads the records of a stretch of time once, those of each log after those of the one before. It
// keeps no position, so it does not hold up trimming; it skips and counts records trimmed meanwhile.
// It has relay.Source's methods, but its batches may be empty, as the filter may drop all events,
// and ErrSpanEnd ends it.
type Span struct {
	limit relay.BatchLimit
	keep  func(*relay.Event) bool

	parts []part         // what is still to be read; owned by Next
	all   uint64         // how many records there are in all
	held  []store.Item   // from the first part's next on, read already; owned by Next
	open  *record.Reader // the record before next, if it is not read to its end; owned by Next
	given relay.Position // the number of batches; owned by Next

	// Oldest is when the oldest kept record was committed. Cut means the span begins before
	// it, with records trimmed already.
	Oldest time.Time
	Cut    bool

	// Next counts these; only its caller's goroutine may read them.
	Events  uint64 // let through by the filter
	Missing uint64 // records trimmed before they could be read
	Corrupt uint64 // records that are damaged or lost; live delivery names them
}

// part are the records [next, end) of a log.
type part struct {
	j         *Journal
	next, end store.Pos
}

// Span opens the records committed in [since, until); a zero until means now. It gives the
// events chosen by keep; a nil keep means all. The limit is as in [Journal.Source].
func (s *Set) Span(ctx context.Context, since, until time.Time, limit relay.BatchLimit, keep func(*relay.Event) bool) (*Span, error) {
	span := &Span{limit: limit, keep: keep}
	for _, j := range s.logs {
		if err := span.add(ctx, j, since, until); err != nil {
			return nil, err
		}
	}
	return span, nil
}

// add adds the records of a log.
func (s *Span) add(ctx context.Context, j *Journal, since, until time.Time) error {
	state, err := j.state(ctx)
	if err != nil {
		return err
	}
	if state.First > state.End {
		s.Cut = s.Cut || state.End > 0
		return nil
	}
	oldest, err := j.oldest.time(ctx, j.events, state.First)
	if err != nil {
		return err
	}
	s.Oldest = earlier(s.Oldest, oldest)
	s.Cut = s.Cut || state.First > 1 && since.Before(oldest)
	p := part{j, state.First, state.End + 1}
	if p.next, err = j.seek(ctx, since, p.next, p.end); err == nil && !until.IsZero() {
		p.end, err = j.seek(ctx, until, p.next, p.end)
	}
	s.parts, s.all = append(s.parts, p), s.all+uint64(p.end-p.next)
	return err
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
	read = s.all
	for _, p := range s.parts {
		read -= uint64(p.end - p.next)
	}
	return read, s.all
}

// Next gives the next events chosen by keep, in order. It returns an empty batch once it
// has read the limit's bytes of others, so its caller sees progress.
func (s *Span) Next(ctx context.Context) (relay.Batch, error) {
	var events []relay.Event
	for bytes := 0; len(events) < s.limit.Events && bytes < s.limit.Bytes; {
		err := s.advance(ctx)
		if errors.Is(err, ErrSpanEnd) && len(events) > 0 {
			break
		}
		if err != nil {
			return relay.Batch{}, err
		}
		var size int
		events, size = s.take(events, s.limit.Bytes-bytes)
		bytes += size
	}
	s.given++ // a position of the log would not do: a large record is given in several batches
	return relay.Batch{Events: events, Position: s.given}, nil
}

// advance opens the next record, unless one is open.
func (s *Span) advance(ctx context.Context) error {
	for s.open == nil {
		for len(s.parts) > 0 && s.parts[0].next == s.parts[0].end {
			s.parts, s.held = s.parts[1:], nil
		}
		if len(s.parts) == 0 {
			return ErrSpanEnd
		}
		if err := s.step(ctx, &s.parts[0]); err != nil {
			return err
		}
	}
	return nil
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
func (s *Span) step(ctx context.Context, p *part) error {
	if len(s.held) == 0 {
		if err := s.read(ctx, p); err != nil {
			return err
		}
	}
	if len(s.held) == 0 { // the log went back, and has nothing there
		s.Missing += uint64(p.end - p.next)
		p.next = p.end
		return nil
	}
	item := s.held[0]
	s.held = s.held[1:]
	if gap := item.Gap; gap != nil {
		to := min(gap.To+1, p.end)
		if gap.Why == store.Trimmed {
			s.Missing += uint64(to - p.next)
		} else {
			s.Corrupt += uint64(to - p.next)
		}
		p.next = to
		return nil
	}
	p.next = item.Record.Pos + 1
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

// read reads the next records and gaps of a part.
func (s *Span) read(ctx context.Context, p *part) error {
	size := 0
	for item, err := range between(ctx, p.j.events, p.next, p.end) {
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
