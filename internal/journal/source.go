package journal

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/auditrelay/auditrelay/internal/streams"
	"github.com/auditrelay/auditrelay/internal/streamserver"
	"github.com/auditrelay/auditrelay/relay"
)

const (
	consumerPrefix = streamserver.SinkConsumers
	// fetchRecords bounds the client's buffered records for one sink. fetchBytes bounds the
	// stored bytes of one request, beside the largest possible record.
	fetchRecords = 16
	fetchBytes   = 1 << 20
	// decodedAhead bounds the records decoded in advance.
	decodedAhead = 2
	// After idleCheck without a record, a source asks whether it missed one.
	idleCheck = 2 * time.Second
)

// Source reads the journal for one sink. It implements relay.Source.
//
// The sink's position is a durable JetStream consumer; an acknowledgement covers all
// records before it. Only one process at a time may read for a sink: a second one
// would take records away from the first.
type Source struct {
	j     *Journal
	sink  string
	name  string // the consumer's
	limit relay.BatchLimit

	consumer jetstream.Consumer // the reading goroutine's own, once it runs
	reads    reader             // the reading goroutine's own
	decoded  chan fetched       // filled by the reading goroutine
	cancel   context.CancelFunc
	failed   error // why reading ended; valid once decoded is closed

	rest  *pieces   // of the record given last; Next's own
	spare *fetched  // read from decoded, but did not fit into the batch; Next's own
	last  time.Time // when the last batch was given; Next's own

	gathered []fetched // memory for the records of a batch; Next's own

	mu    sync.Mutex // guards the fields below
	given []ending   // of the batches not acknowledged yet, oldest first
	acked uint64     // the newest acknowledged record
	turns int        // how often the stream had gone back before the newest session
	now   int        // counts sessions; each starts behind the given records
	// newest is the position of the newest batch. ahead is the difference between a batch's
	// position and its last record: after the stream went back, records get lower numbers,
	// but positions still grow.
	newest, ahead uint64
	started       bool // the first session has begun
}

// ending says how to acknowledge a batch and all before it. It holds none of the
// batch's events and bytes.
type ending struct {
	position uint64 // of the batch
	last     uint64 // the record to acknowledge: the batch's last, or one behind it without events
	// reply is the subject to acknowledge it by. If the server must give the record again,
	// it is empty until then.
	reply string
	// void means no acknowledgement: the stream went back, and has or will have other
	// records there.
	void bool
}

// fetched is a record as read.
type fetched struct {
	msg    jetstream.Msg
	seq    uint64
	size   int // of its events: see [record.Reader]
	now    int // its session
	events []relay.Event
	large  bool // its events are read later, in pieces
}

// Source opens a sink's position, at the journal's start for a new sink, and begins to
// read. Close it when done. The limit counts events, and their memory with labels. A
// batch holds whole records, or a piece of one, and may exceed the limit by as much.
func (j *Journal) Source(ctx context.Context, sink string, limit relay.BatchLimit) (*Source, error) {
	s := &Source{j: j, sink: sink, name: consumerPrefix + sink, limit: limit, decoded: make(chan fetched, decodedAhead)}
	var first session
	err := streams.Await(ctx, j.log, "the position of sink "+sink, func(ctx context.Context) (err error) {
		first, err = s.open(ctx)
		return err
	})
	if err != nil {
		return nil, err
	}
	reading, cancel := context.WithCancel(context.Background())
	s.cancel = cancel
	go s.read(reading, first)
	return s, nil
}

// Next implements relay.Source.
func (s *Source) Next(ctx context.Context) (relay.Batch, error) {
	for {
		if s.rest != nil {
			return s.piece()
		}
		first, err := s.wait(ctx)
		if err != nil {
			return relay.Batch{}, err
		}
		events, last := s.gather(ctx, first)
		position, ok := s.give(last, len(events) > 0 || last.large)
		if ok && last.large {
			s.rest = &pieces{data: last.msg.Data(), position: uint64(position)}
			continue
		}
		if ok && len(events) > 0 {
			s.last = time.Now()
			return relay.Batch{Events: events, Position: position}, nil
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

// give notes how to acknowledge a batch ending with last, and returns its position. It
// returns false for records of an earlier session: they are read again. If all its records
// were set aside, there is no batch: the one before acknowledges them.
func (s *Source) give(last fetched, isBatch bool) (relay.Position, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if last.now != s.now {
		return 0, false
	}
	e := ending{position: last.seq + s.ahead, last: last.seq, reply: last.msg.Reply()}
	switch newest := len(s.given) - 1; {
	case isBatch, newest >= 0 && s.given[newest].void:
		s.given = append(s.given, e)
	case newest >= 0:
		e.position = s.given[newest].position
		s.given[newest] = e
	default: // all before it is acknowledged
		s.acknowledge(e)
	}
	s.newest = max(s.newest, e.position)
	return relay.Position(e.position), true
}

// Ack implements relay.Source.
func (s *Source) Ack(_ context.Context, p relay.Position) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	record, isPiece := recordOf(p)
	i := slices.IndexFunc(s.given, func(e ending) bool { return e.position == record })
	if isPiece && i == 0 {
		return nil
	}
	if isPiece {
		i-- // the batch before the record
	}
	if i < 0 {
		return fmt.Errorf("acknowledge position %d: no batch that waits for it ends there", p)
	}
	s.acknowledge(s.given[i])
	s.given = append(s.given[:0], s.given[i+1:]...)
	return nil
}

// acknowledge tells the server; it writes the position to disk later. A lost
// acknowledgement is no failure: the next one covers it, or the server offers the record
// again. mu is held.
func (s *Source) acknowledge(e ending) {
	if e.void {
		return
	}
	s.acked = e.last
	if turns, _ := s.j.Losses.History.Turns(s.turns); turns != s.turns {
		return // the next session begins behind it, or at the stream's new end
	}
	if e.reply != "" {
		s.confirm(e.reply, e.last)
	}
	s.j.Positions.Acknowledged(s.sink, e.last)
}

// confirm sends an acknowledgement.
func (s *Source) confirm(reply string, seq uint64) {
	if err := s.j.conn.JetStream.Conn().Publish(reply, []byte("+ACK")); err != nil {
		s.j.log.Debug("a position was not recorded yet", "consumer", s.name, "position", seq, "error", err)
	}
}

// Close ends the reading; the position stays.
func (s *Source) Close() {
	s.cancel()
	for range s.decoded { //nolint:revive // drained until the reading goroutine has ended
	}
	s.j.Positions.End(s.sink)
}
