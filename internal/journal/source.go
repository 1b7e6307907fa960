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

	rest     *pieces   // of the record given last; Next's own
	spare    *fetched  // read from decoded, but did not fit into the batch; Next's own
	backlog  bool      // the reading goroutine waited for Next, so more records stand in the log; Next's own
	last     time.Time // when the last batch was given; Next's own
	placed   bool      // events tell where they stand; set before the first Next
	gathered []fetched // memory for the records of a batch; Next's own

	mu    sync.Mutex // guards the fields below
	acked mark       // the newest acknowledged place
	read  mark       // the end of the newest batch
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

// fetched is a record as read, or the end of a gap, without events.
type fetched struct {
	mark
	size   int // of its events: see [record.Reader]
	events []relay.Event
	large  []byte // the whole record, if its events are to be read in pieces
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

// readers are the sources of this process.
type readers struct {
	mu sync.Mutex
	by map[string]*Source // by sink; guarded by mu
}

func (r *readers) get(sink string) *Source {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.by[sink]
}

func (r *readers) set(sink string, s *Source) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if s == nil {
		delete(r.by, sink)
		return
	}
	r.by[sink] = s
}

// Source opens a sink's position, at the journal's start for a new sink, and begins to
// read. Close it when done. The limit counts events, and their memory with labels. A
// batch holds whole records, or a piece of one, and may exceed the limit by as much.
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
	j.readers.set(sink, s)
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
	if at.pos == 0 && why == "" && s.j.writer != "" {
		if first, err = s.j.announced(ctx, first); err != nil {
			return err
		}
	}
	if at.pos+1 < first || why != "" {
		if at, err = s.j.markBefore(ctx, first); err != nil {
			return err
		}
	}
	s.acked, s.read, s.began = at, at, at.pos
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
		if failing.Again(err.Error()) {
			s.j.log.Warn("reading the journal was interrupted; it goes on", "sink", s.sink, "error", err)
		}
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
		var f fetched
		if item.Gap != nil {
			f, err = s.gap(ctx, item.Gap, after)
		} else {
			f, err = s.record(ctx, item.Record)
		}
		if err == nil {
			err = s.pass(ctx, &f)
		}
		if err != nil {
			return err
		}
		*after = f.mark
	}
	return nil
}

// gap names lost positions before the sink passes over them. The end of the gap is
// acknowledged with what comes before it.
func (s *Source) gap(ctx context.Context, gap *store.Gap, after *mark) (fetched, error) {
	f := fetched{mark: mark{pos: gap.To, events: after.events, at: after.at}}
	if gap.Why == store.Trimmed {
		return f, nil
	}
	if err := s.j.lost.Name(ctx, s.j.name, *gap); err != nil {
		return f, err
	}
	return f, s.j.lost.HoldBefore(ctx, s.sink, *gap)
}

// record decodes a record. One that cannot be read is named and passed over.
func (s *Source) record(ctx context.Context, r *store.Record) (fetched, error) {
	f := fetched{mark: markOf(r)}
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
		return f, s.j.lost.HoldVersion(ctx, s.sink, r.Pos, failed)
	case failed != nil:
		if err := s.j.lost.NameRecord(ctx, s.j.name, r.Pos, failed.Error(), r.Data); err != nil {
			return f, err
		}
		return f, s.j.lost.HoldBefore(ctx, s.sink, store.Gap{From: r.Pos, To: r.Pos, Why: store.Damaged})
	case d.Large:
		f.large = slices.Clone(r.Data)
	}
	f.events, f.size = d.Events, d.Size
	return f, s.admit(ctx, layoutOf(r))
}

// admit waits until the sink may have records of a layout.
func (s *Source) admit(ctx context.Context, layout uint64) error {
	if layout <= s.layout || s.j.admit == nil {
		return nil
	}
	err := s.j.admit(ctx, s.sink, layout)
	if err == nil {
		s.layout = layout
	}
	return err
}

// pass hands a record to Next.
func (s *Source) pass(ctx context.Context, f *fetched) error {
	s.mu.Lock()
	s.ahead = append(s.ahead, f.mark)
	s.mu.Unlock()
	select {
	case s.decoded <- *f:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Next implements relay.Source.
func (s *Source) Next(ctx context.Context) (relay.Batch, error) {
	for {
		if s.rest != nil {
			return s.piece()
		}
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
		switch {
		case last.large != nil && s.opens(&last):
		case len(events) > 0:
			s.last = time.Now()
			return relay.Batch{Events: events, Position: s.give(&last, last.mark, lastPiece)}, nil
		default:
			s.skip(&last)
		}
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

// give notes a batch that ends with a piece of a record, and what its acknowledgement
// covers. It returns the batch's position.
func (s *Source) give(last *fetched, through mark, piece uint64) relay.Position {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := ending{position: relay.Position(uint64(last.pos)<<pieceBits | min(piece, lastPiece)), through: through}
	s.given, s.read = append(s.given, e), last.mark
	return e.position
}

// skip passes over positions without events: the batch before them acknowledges them.
func (s *Source) skip(last *fetched) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.read = last.mark
	if n := len(s.given); n > 0 {
		s.given[n-1].through = last.mark
		return
	}
	s.acknowledge(last.mark)
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
	n := slices.IndexFunc(s.ahead, func(m mark) bool { return m.pos > through.pos })
	if n < 0 {
		n = len(s.ahead)
	}
	s.ahead = append(s.ahead[:0], s.ahead[n:]...)
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
	s.j.readers.set(s.sink, nil)
}
