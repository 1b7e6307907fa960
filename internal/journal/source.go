package journal

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
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
	j        *Journal
	name     string
	consumer jetstream.Consumer
	limit    Limit

	decoded chan record // filled by the reading goroutine
	cancel  context.CancelFunc
	failed  error // why reading ended; valid once decoded is closed

	spare *record   // read from decoded, but did not fit into the batch; Next's own
	last  time.Time // when the last batch was given; Next's own

	mu    sync.Mutex
	given []ending // of the batches that are not acknowledged, oldest first; guarded by mu

	gathered []record // memory for the records of a batch; Next's own

	acked atomic.Uint64 // the newest position given to Ack
}

// ending is how a batch is acknowledged, and all before it. It holds none of
// the batch's events and bytes.
type ending struct {
	position uint64 // of the batch
	last     uint64 // the record that is acknowledged: the batch's last, or one behind it without events
	reply    string // the subject that acknowledges it
}

// Limit bounds the batches of a source. A batch holds whole records, so it may
// exceed them by one record.
type Limit struct{ Events, Bytes int }

// record is one that was read.
type record struct {
	msg    jetstream.Msg
	seq    uint64
	size   int // bytes as stored
	events []relay.Event
}

// Source opens the position of a sink, at the journal's start where it has
// none yet, and begins to read. Close it when done.
func (j *Journal) Source(ctx context.Context, sink string, limit Limit) (*Source, error) {
	s := &Source{j: j, name: consumerPrefix + sink, limit: limit, decoded: make(chan record, decodedAhead)}
	var start *jetstream.ConsumerResetResponse
	err := streams.Await(ctx, j.log, "the position of sink "+sink, func(ctx context.Context) (err error) {
		start, err = s.open(ctx, sink)
		return err
	})
	if err != nil {
		return nil, err
	}
	reading, cancel := context.WithCancel(context.Background())
	s.cancel = cancel
	go s.read(reading, start.Delivered.Consumer, start.AckFloor.Stream)
	return s, nil
}

// open opens the sink's position, and returns where that is. It can be repeated.
func (s *Source) open(ctx context.Context, sink string) (at *jetstream.ConsumerResetResponse, err error) {
	s.consumer, err = s.j.stream.CreateOrUpdateConsumer(ctx, jetstream.ConsumerConfig{
		Durable:       s.name,
		Description:   "auditrelay: how far sink " + sink + " has come",
		AckPolicy:     jetstream.AckAllPolicy,
		AckWait:       ackWait,
		DeliverPolicy: jetstream.DeliverAllPolicy,
		MaxAckPending: maxAckPending,
		MaxDeliver:    -1,
	})
	if err != nil {
		return nil, fmt.Errorf("open the position of sink %s: %w", sink, err)
	}
	if err := s.checkPosition(ctx); err != nil {
		return nil, err
	}
	at, _, err = s.rewind(ctx)
	return at, err
}

// rewind makes the server give again all that is not acknowledged, in order.
// Without it, what an earlier process had read would come again only after
// ackWait and out of order, and an acknowledgement of what comes before it
// would cover it too: it would be lost. It returns where that is, and the
// newest record that there is.
func (s *Source) rewind(ctx context.Context) (at *jetstream.ConsumerResetResponse, newest uint64, err error) {
	at, err = s.j.stream.ResetConsumer(ctx, s.name)
	if err != nil {
		return nil, 0, fmt.Errorf("rewind to the last acknowledged position of %s: %w", s.name, err)
	}
	info, err := s.j.stream.Info(ctx)
	if err != nil {
		return nil, 0, fmt.Errorf("read the journal's state: %w", err)
	}
	return at, info.State.LastSeq, nil
}

// read fetches and decodes ahead of Next until ctx ends, from behind the
// record after and the given count of deliveries.
func (s *Source) read(ctx context.Context, delivered, after uint64) {
	defer close(s.decoded)
	s.failed = ErrClosed
	for {
		err := s.readFrom(ctx, delivered, &after)
		if ctx.Err() != nil {
			return
		}
		s.j.log.Warn("reading the journal was interrupted", "consumer", s.name, "error", err)
		for again := false; !again; {
			if streams.Pause(ctx, retryPause) != nil {
				return
			}
			start, newest, err := s.rewind(ctx)
			// A server that lost its newest records, which must not be, gives
			// their numbers to others: those are not to be passed over.
			if again = err == nil; again {
				delivered, after = start.Delivered.Consumer, min(after, newest)
			}
		}
	}
}

// errGap says that there is a record which did not come to us.
var errGap = errors.New("records were delivered elsewhere, or not at all")

// readFrom passes on the records behind after, the first of which must be the
// delivery after the given count: a jump of that count means that a record
// went elsewhere, and to acknowledge what comes behind it would lose it.
func (s *Source) readFrom(ctx context.Context, delivered uint64, after *uint64) error {
	it, err := s.consumer.Messages(jetstream.PullMaxMessagesWithBytesLimit(fetchRecords, s.j.conn.readLimit()))
	if err != nil {
		return fmt.Errorf("read records: %w", err)
	}
	defer it.Stop()
	defer context.AfterFunc(ctx, it.Stop)()
	for {
		msg, err := s.fetch(ctx, it, delivered)
		if err != nil {
			return err
		}
		meta, err := msg.Metadata()
		if err != nil {
			return fmt.Errorf("read a record's metadata: %w", err)
		}
		if delivered++; meta.Sequence.Consumer != delivered {
			return errGap
		}
		if meta.Sequence.Stream <= *after {
			s.offeredAgain(msg, meta.Sequence.Stream)
			continue
		}
		if err := s.nameSkipped(ctx, *after+1, meta.Sequence.Stream); err != nil {
			return err
		}
		if err := s.holdBefore(ctx, span{*after + 1, meta.Sequence.Stream - 1}); err != nil {
			return err
		}
		if err := s.pass(ctx, msg, meta.Sequence.Stream); err != nil {
			return err
		}
		*after = meta.Sequence.Stream
	}
}

// fetch waits for the next record. While none comes it asks now and then
// whether one should have: it was delivered to a request of an earlier source
// that still stands with the server, or into a connection that broke; or our
// request is gone, with the server that led the consumer.
func (s *Source) fetch(ctx context.Context, it jetstream.MessagesContext, delivered uint64) (jetstream.Msg, error) {
	missing := false
	for {
		msg, err := it.Next(jetstream.NextMaxWait(idleCheck))
		switch {
		case err == nil:
			return msg, nil
		case errors.Is(err, jetstream.ErrNoHeartbeat):
			continue // a reconnect: the iterator asks again
		case !errors.Is(err, nats.ErrTimeout):
			return nil, fmt.Errorf("read a record: %w", err)
		case missing:
			return nil, errGap // and it did not come meanwhile
		}
		info, err := s.consumer.Info(ctx)
		if err != nil {
			continue // the server is away; the iterator comes back with it
		}
		missing = info.Delivered.Consumer > delivered || info.NumPending > 0 && info.NumAckPending < maxAckPending
	}
}

// offeredAgain looks at a record that was read before and not acknowledged in
// time, as the server sees it. If it is acknowledged here, that got lost.
func (s *Source) offeredAgain(msg jetstream.Msg, seq uint64) {
	if seq <= s.acked.Load() {
		_ = msg.Ack() // if this is lost too, it is offered once more
	}
}

// pass decodes a record and hands it to Next.
func (s *Source) pass(ctx context.Context, msg jetstream.Msg, seq uint64) error {
	events, err := s.j.decoded.decode(seq, msg.Data())
	switch {
	case errors.Is(err, ErrVersion):
		return s.holdVersion(ctx, seq, err)
	case err != nil:
		q := Quarantined{Stream: s.j.names.events, From: seq, To: seq, Reason: err.Error()}
		if err := s.j.setAside(ctx, q, msg.Data()); err != nil {
			return err
		}
		if err := s.holdBefore(ctx, span{seq, seq}); err != nil {
			return err
		}
	}
	select {
	case s.decoded <- record{msg: msg, seq: seq, size: len(msg.Data()), events: events}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Next implements relay.Source.
func (s *Source) Next(ctx context.Context) (relay.Batch, error) {
	for {
		first, err := s.wait(ctx)
		if err != nil {
			return relay.Batch{}, err
		}
		events, last := s.gather(ctx, first)
		s.give(last, len(events) > 0)
		if len(events) > 0 {
			s.last = time.Now()
			return relay.Batch{Events: events, Position: relay.Position(last.seq)}, nil
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

// give notes how what ends with last is acknowledged. Records that were all set
// aside make no batch: they are acknowledged with the batch before them.
func (s *Source) give(last record, isBatch bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := ending{last.seq, last.seq, last.msg.Reply()}
	switch newest := len(s.given) - 1; {
	case isBatch:
		s.given = append(s.given, e)
	case newest >= 0:
		e.position = s.given[newest].position
		s.given[newest] = e
	default: // all before it is acknowledged
		s.acknowledge(e)
	}
}

// Ack implements relay.Source.
func (s *Source) Ack(_ context.Context, p relay.Position) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.IndexFunc(s.given, func(e ending) bool { return e.position == uint64(p) })
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
	s.acked.Store(e.last)
	if err := s.j.conn.nc.Publish(e.reply, []byte("+ACK")); err != nil {
		s.j.log.Debug("a position was not recorded yet", "consumer", s.name, "position", e.last, "error", err)
	}
	s.j.conn.marks.raise(s.name, noted{e.last, s.j.made})
}

// Close ends the reading; the position stays.
func (s *Source) Close() {
	s.cancel()
	for range s.decoded { //nolint:revive // drained until the reading goroutine has ended
	}
}
