package journal

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/auditrelay/auditrelay/internal/journal/record"
	"github.com/auditrelay/auditrelay/internal/retry"
	"github.com/auditrelay/auditrelay/internal/store"
	"github.com/auditrelay/auditrelay/internal/store/lease"
	"github.com/auditrelay/auditrelay/relay"
)

const (
	// decodedAhead bounds the records that are decoded in advance.
	decodedAhead = 2
	// retryPause is the wait after a failed read.
	retryPause = 250 * time.Millisecond
)

// Source reads the journal for one sink. It implements relay.Source. Only one Source at a
// time may read for a sink.
type Source struct {
	j     *Journal
	turn  *lease.Turn
	sink  string
	limit relay.BatchLimit
	began store.Pos // the position that it was opened with

	decoded chan fetched // filled by the reading goroutine
	cancel  context.CancelFunc
	failed  error  // why reading ended; valid once decoded is closed
	layout  uint64 // the newest one that the sink was admitted to; the reading goroutine's own

	spare    *fetched  // read from decoded, but did not fit into the batch; Next's own
	backlog  bool      // the reading goroutine waited for Next, so more records stand in the log; Next's own
	last     time.Time // when the last batch was given; Next's own
	placed   bool      // events tell where they stand; set before the first Next
	gathered []fetched // memory for the records of a batch; Next's own

	mu    sync.Mutex // guards the fields below
	acked mark       // the newest acknowledged place
	given []ending   // of the batches that are not acknowledged yet, oldest first
	ahead []mark     // of the records that were read, and not acknowledged yet, oldest first
}

// ending is the end of a batch.
type ending struct {
	position relay.Position
	// through is what an acknowledgement of the batch covers: its last record, or the one
	// before it for a piece of a record with more pieces to come.
	through mark
}

// fetched is a record as read, or a piece of one, or the end of a gap, without events.
//
// All events of a large record at once take too much memory, so they come in pieces. Only the last
// piece acknowledges the record. After a crash it is read again from its start.
type fetched struct {
	mark           // of the whole record
	through mark   // what an acknowledgement covers: the mark, or the one before it for a piece with more to come
	piece   uint64 // its number, from 1; lastPiece for a whole record
	first   int    // the place of the first event in the record
	size    int    // of the events: see [record.Reader]
	events  []relay.Event
}

// A Source's position has the record in its high bits, and a piece of it in the low ones:
// the largest number for a whole record, or for its last piece.
const (
	pieceBits = 20
	lastPiece = 1<<pieceBits - 1
)

// DeliveredRecord is the newest record that was delivered whole at a position of a Source.
func DeliveredRecord(p relay.Position) uint64 {
	pos := uint64(p) >> pieceBits
	if p&lastPiece != lastPiece {
		return pos - 1
	}
	return pos
}

// reader is the source of a sink in this process, or nil.
func (j *Journal) reader(sink string) *Source {
	s, _ := j.readers.Load(sink)
	reading, _ := s.(*Source)
	return reading
}

// Source opens a sink's position, at the journal's start for a new sink, and begins to
// read. Close it when done. The limit counts events, and their memory with labels. A
// batch holds whole records and pieces of them, and may exceed the limit by one.
func (j *Journal) Source(ctx context.Context, sink string, limit relay.BatchLimit) (*Source, error) {
	return j.SourceUnder(ctx, new(lease.Turn), sink, limit)
}

// SourceUnder is Source for a relay that has the sink's turn in a cluster. Once another one has
// it, the source moves the position no more.
func (j *Journal) SourceUnder(ctx context.Context, turn *lease.Turn, sink string, limit relay.BatchLimit) (*Source, error) {
	if err := j.register(ctx, sink); err != nil {
		return nil, err
	}
	s := &Source{j: j, turn: turn, sink: sink, limit: limit, decoded: make(chan fetched, decodedAhead)}
	if err := s.open(ctx); err != nil {
		return nil, fmt.Errorf("open the position of sink %s: %w", sink, err)
	}
	j.readers.Store(sink, s)
	reading, cancel := context.WithCancel(context.Background())
	s.cancel = cancel
	go s.run(reading, s.acked)
	return s, nil
}

// Place makes each event tell its record, for a sink that delivers exactly once. It is called
// before the first Next.
func (s *Source) Place() { s.placed = true }

// open finds the sink's position. It never lies after what the sink has acknowledged: where
// the position cannot be believed, the sink gets everything that is kept.
func (s *Source) open(ctx context.Context) error {
	state, err := s.j.state(ctx)
	if err != nil {
		return err
	}
	at, why, err := s.j.position(ctx, s.sink, &state)
	if err != nil {
		return err
	}
	if why != "" {
		s.j.metrics.distrusted.Inc()
		s.j.log.Error("the position of a sink cannot be believed, so the sink gets all events that are kept, most of them again",
			"sink", s.sink, "reason", why, "from", state.First)
	}
	first := state.First
	if at.pos == 0 && why == "" && s.j.set.opts.Shared {
		if first, err = s.j.announced(ctx, first); err != nil {
			return err
		}
	}
	if at.pos+1 < first || why != "" {
		if at, err = s.j.markBefore(ctx, first); err != nil {
			return err
		}
	}
	s.acked, s.began = at, at.pos
	if err := s.keep(ctx, at); err != nil {
		s.j.log.Warn("the position of a sink was not written yet", "sink", s.sink, "error", err)
	}
	return nil
}

// run reads and decodes ahead of Next until ctx ends.
func (s *Source) run(ctx context.Context, after mark) {
	defer close(s.decoded)
	s.failed = ErrClosed
	var failing retry.Failure
	for {
		began := after.pos
		err := s.readFrom(ctx, &after)
		if ctx.Err() != nil || errors.Is(err, store.ErrClosed) {
			return
		}
		if after.pos > began {
			failing = retry.Failure{}
		}
		failing.Tell(s.j.log.With("sink", s.sink), err, "reading the journal was interrupted; it goes on", "the journal is read again")
		if retry.Sleep(ctx, retryPause) != nil {
			return
		}
	}
}

// readFrom passes on what comes after a place, and moves it.
func (s *Source) readFrom(ctx context.Context, after *mark) error {
	for item, err := range s.j.events.Read(ctx, after.pos+1, true) {
		if err != nil {
			return fmt.Errorf("read the journal from record %d on: %w", after.pos+1, err)
		}
		var at mark
		if item.Gap != nil {
			at, err = s.gap(ctx, item.Gap, after)
		} else {
			at, err = s.record(ctx, item.Record, after)
		}
		if err != nil {
			return err
		}
		*after = at
	}
	return nil
}

// gap names lost positions before the sink passes over them. The end of the gap is
// acknowledged with what comes before it.
func (s *Source) gap(ctx context.Context, gap *store.Gap, after *mark) (end mark, err error) {
	end = mark{pos: gap.To, events: after.events, at: after.at}
	if gap.Why != store.Trimmed {
		if err := s.j.lost.Name(ctx, s.j.name, *gap); err != nil {
			return end, err
		}
		if err := s.j.lost.HoldBefore(ctx, s.sink, *gap); err != nil {
			return end, err
		}
	}
	return end, s.pass(ctx, whole(end))
}

// whole is a record that is given at once, still without its events, or the end of a gap.
func whole(at mark) fetched { return fetched{mark: at, through: at, piece: lastPiece} }

// record decodes a record, and passes its events on. One that cannot be read is named and passed over.
func (s *Source) record(ctx context.Context, r *store.Record, after *mark) (end mark, err error) {
	end = markOf(r)
	d, fresh := s.j.decoded.Decode(uint64(r.Pos), r.Data)
	if fresh && d.Cut > 0 {
		s.j.log.Error("a record has events with more labels than are read; a label of each says how many were left out", "position", r.Pos, "label", record.LabelsCut)
	}
	failed := d.Err
	if r.Kind != kindEvents {
		failed = fmt.Errorf("%w: the record is of the kind %d, and this version knows the kind %d", record.ErrVersion, r.Kind, kindEvents)
	}
	switch {
	case errors.Is(failed, record.ErrVersion):
		return end, s.j.lost.HoldVersion(ctx, s.sink, r.Pos, failed)
	case failed != nil:
		err = s.j.lost.NameRecord(ctx, s.j.name, r.Pos, failed.Error(), r.Data)
		if err == nil {
			err = s.j.lost.HoldBefore(ctx, s.sink, store.Gap{From: r.Pos, To: r.Pos, Why: store.Damaged})
		}
	default:
		err = s.admit(ctx, r)
	}
	switch f := whole(end); {
	case err != nil:
		return end, err
	case d.Large:
		return end, s.passPieces(ctx, f, r.Data, after)
	default:
		f.events, f.size = d.Events, d.Size
		return end, s.pass(ctx, f)
	}
}

// passPieces hands a large record to Next, a piece at a time.
func (s *Source) passPieces(ctx context.Context, f fetched, data []byte, before *mark) error {
	reader, err := record.Open(data)
	for n := uint64(1); err == nil && !reader.Done(); n++ {
		f.first += len(f.events)
		if f.events, f.size, err = reader.Next(nil, min(record.PieceBytes, max(1, s.limit.Bytes))); err != nil {
			break
		}
		f.through, f.piece = *before, min(n, lastPiece-1)
		if reader.Done() {
			f.through, f.piece = f.mark, lastPiece
		}
		err = s.pass(ctx, f)
	}
	return err
}

// admit waits until the sink may have records of the layout of this one.
func (s *Source) admit(ctx context.Context, r *store.Record) error {
	_, _, layout := keyIn(r)
	if layout <= s.layout || !s.j.set.opts.Shared {
		return nil
	}
	err := s.j.set.admit(ctx, s.sink, layout)
	if err == nil {
		s.layout = layout
	}
	return err
}

// pass hands a record, or a piece of one, to Next.
func (s *Source) pass(ctx context.Context, f fetched) error {
	s.mu.Lock()
	if f.first == 0 {
		s.ahead = append(s.ahead, f.mark)
	}
	s.mu.Unlock()
	select {
	case s.decoded <- f:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Next implements relay.Source.
func (s *Source) Next(ctx context.Context) (relay.Batch, error) {
	for {
		s.backlog = len(s.decoded) == cap(s.decoded)
		first, err := s.wait(ctx)
		if err != nil {
			return relay.Batch{}, err
		}
		if err := s.turn.Await(ctx); err != nil {
			s.spare = &first // whoever asks again gets it
			return relay.Batch{}, err
		}
		events, last := s.gather(ctx, first)
		if len(events) > 0 {
			s.last = time.Now()
			return relay.Batch{Events: events, Position: s.give(&last)}, nil
		}
		s.skip(last.mark)
	}
}

func (s *Source) wait(ctx context.Context) (fetched, error) {
	if s.spare != nil {
		r := *s.spare
		s.spare = nil
		return r, nil
	}
	select {
	case r, ok := <-s.decoded:
		if !ok {
			return fetched{}, s.failed
		}
		return r, nil
	case <-ctx.Done():
		return fetched{}, ctx.Err()
	}
}

// give notes the end of a batch, and returns its position.
func (s *Source) give(last *fetched) relay.Position {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := ending{position: relay.Position(uint64(last.pos)<<pieceBits | last.piece), through: last.through}
	s.given = append(s.given, e)
	return e.position
}

// skip passes over positions without events: the batch before them acknowledges them.
func (s *Source) skip(through mark) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(s.given); n > 0 {
		s.given[n-1].through = through
		return
	}
	s.acknowledge(through)
}

// Ack implements relay.Source.
func (s *Source) Ack(_ context.Context, p relay.Position) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.IndexFunc(s.given, func(e ending) bool { return e.position == p })
	if i < 0 {
		return fmt.Errorf("acknowledge position %d: no batch that waits for it ends there", p)
	}
	through := s.given[i].through
	s.given = append(s.given[:0], s.given[i+1:]...)
	s.acknowledge(through)
	return nil
}

// acknowledge moves the sink's position. The sink has the events, or the dead letters do,
// before it is called. A crash before the write has them delivered again, and a write that
// failed is made up for by the next one. mu is held.
func (s *Source) acknowledge(through mark) {
	if through.pos == s.acked.pos {
		return
	}
	s.acked = through
	s.ahead = slices.DeleteFunc(s.ahead, func(m mark) bool { return m.pos <= through.pos })
	if err := s.keep(context.Background(), through); err != nil {
		s.j.log.Debug("a position was not written yet", "sink", s.sink, "position", through.pos, "error", err)
	}
}

// Close ends the reading; the position stays.
func (s *Source) Close() {
	s.cancel()
	for range s.decoded { //nolint:revive // drained until the reading goroutine has ended
	}
	s.countOverlap()
	s.j.readers.Delete(s.sink)
}
