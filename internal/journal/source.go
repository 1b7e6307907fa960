package journal

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/auditrelay/auditrelay/internal/streams"
	"github.com/auditrelay/auditrelay/relay"
)

const (
	// consumerPrefix marks the consumers that are a sink's position.
	consumerPrefix = "sink_"
	// fetchRecords bounds the records that the client buffers for one sink, and
	// fetchBytes, beside the largest record that there may be, what it asks for
	// at once, as stored.
	fetchRecords = 32
	fetchBytes   = 1 << 20
	// decodedAhead bounds the records that are decoded before they are asked for.
	decodedAhead = 4
	// ackWait is after how long the server offers a record again that is not
	// acknowledged. A source knows what it has read and passes over it, so this
	// matters only for a record that got lost on the way.
	ackWait = 30 * time.Second
	// idleCheck is how long a source waits before it asks what it may have missed.
	idleCheck = 2 * time.Second
	// maxAckPending bounds the records that are read and not acknowledged.
	maxAckPending = 20_000
)

// Source reads the journal for one sink. It implements relay.Source.
//
// The sink's position is a durable JetStream consumer whose acknowledgement
// covers all before it. One process at a time may read for a sink: a second
// would take records away from the first.
type Source struct {
	j     *Journal
	sink  string
	name  string // of the consumer
	limit Limit

	consumer jetstream.Consumer // the reading goroutine's own, once that runs
	decoded  chan record        // filled by the reading goroutine
	cancel   context.CancelFunc
	failed   error // why reading ended; valid once decoded is closed

	rest  *pieces   // of the record that was given last; Next's own
	spare *record   // read from decoded, but did not fit into the batch; Next's own
	last  time.Time // when the last batch was given; Next's own

	gathered []record // memory for the records of a batch; Next's own

	mu    sync.Mutex // guards what follows
	given []ending   // of the batches that are not acknowledged, oldest first
	acked uint64     // the newest record that is acknowledged
	turns int        // how often the stream had gone back when the newest session began
	now   int        // counts sessions, each of which reads from behind what was given
	// newest is the position of the newest batch, and ahead how much greater than
	// its last record a batch's position is: where the stream went back, records
	// get lower numbers, but positions grow.
	newest, ahead uint64
	started       bool // the first session has begun
}

// ending is how a batch is acknowledged, and all before it. It holds none of
// the batch's events and bytes.
type ending struct {
	position uint64 // of the batch
	last     uint64 // the record that is acknowledged: the batch's last, or one behind it without events
	// reply is the subject that acknowledges it. Empty where the server has to give
	// the record again first, to which that acknowledgement is then sent.
	reply string
	// void says that the stream went back, and has other records there or will: so
	// nothing is acknowledged.
	void bool
}

// Limit bounds the batches of a source: the events, and their size in memory
// with their labels. A batch holds whole records, or a piece of one, and may
// exceed the limit by that much.
type Limit struct{ Events, Bytes int }

// record is one that was read.
type record struct {
	msg    jetstream.Msg
	seq    uint64
	size   int // of its events: see recordReader
	now    int // the session that read it
	events []relay.Event
	large  bool // its events are read when they are given, in pieces
}

// Source opens the position of a sink, at the journal's start where it has
// none yet, and begins to read. Close it when done.
func (j *Journal) Source(ctx context.Context, sink string, limit Limit) (*Source, error) {
	s := &Source{j: j, sink: sink, name: consumerPrefix + sink, limit: limit, decoded: make(chan record, decodedAhead)}
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

func (s *Source) wait(ctx context.Context) (record, error) {
	if s.spare != nil {
		r := *s.spare
		s.spare = nil
		return r, nil
	}
	select {
	case r, ok := <-s.decoded:
		if !ok {
			return record{}, s.failed
		}
		return r, nil
	case <-ctx.Done():
		return record{}, ctx.Err()
	}
}

// give notes how what ends with last is acknowledged, and returns the position
// of that. It returns false for what an earlier session read, which is read again.
// Records that were all set aside make no batch: they are acknowledged with the
// batch before them.
func (s *Source) give(last record, isBatch bool) (relay.Position, bool) {
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
		i-- // what comes before the record
	}
	if i < 0 {
		return fmt.Errorf("acknowledge position %d: no batch that waits for it ends there", p)
	}
	s.acknowledge(s.given[i])
	s.given = append(s.given[:0], s.given[i+1:]...)
	return nil
}

// acknowledge tells the server, which writes the position to disk in its own
// time. What cannot be sent is no failure: the next acknowledgement covers it,
// or the server offers the record again. mu is held.
func (s *Source) acknowledge(e ending) {
	if e.void {
		return
	}
	s.acked = e.last
	if turns, _ := s.j.past.since(s.turns); turns != s.turns {
		return // the next session begins behind it, or behind what stayed of the stream
	}
	if e.reply != "" {
		s.confirm(e.reply, e.last)
	}
	s.j.conn.marks.raise(s.name, noted{e.last, s.j.made})
	s.j.reached.raise(s.name, e.last)
}

// confirm sends an acknowledgement.
func (s *Source) confirm(reply string, seq uint64) {
	if err := s.j.conn.nc.Publish(reply, []byte("+ACK")); err != nil {
		s.j.log.Debug("a position was not recorded yet", "consumer", s.name, "position", seq, "error", err)
	}
}

// Close ends the reading; the position stays.
func (s *Source) Close() {
	s.cancel()
	for range s.decoded { //nolint:revive // drained until the reading goroutine has ended
	}
	s.j.reached.forget(s.name)
}
