package journal

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/auditrelay/auditrelay/internal/datadir"
	"github.com/auditrelay/auditrelay/internal/history"
	"github.com/auditrelay/auditrelay/internal/pause"
	"github.com/auditrelay/auditrelay/internal/positions"
	"github.com/auditrelay/auditrelay/internal/record"
	"github.com/auditrelay/auditrelay/internal/streamserver"
)

// session is a stretch of reading. It begins with a reset of the sink's position, and
// ends with the first fault.
type session struct {
	now        int
	turns      int    // how often the stream had gone back before it
	reconnects uint64 // the connection's reconnects before it
	delivered  uint64 // the server's count of deliveries to the sink
	after      uint64 // the newest record read
}

// open begins a session: it looks for losses, and rewinds the sink's position. open can be
// repeated.
func (s *Source) open(ctx context.Context) (session, error) {
	next := session{reconnects: s.j.conn.JetStream.Conn().Stats().Reconnects} // first: a reconnect from here on ends the session
	if err := s.j.nameMended(ctx); err != nil {
		return next, err
	}
	if err := s.j.Losses.Compare(ctx); err != nil {
		return next, err
	}
	s.begin(&next)
	s.mu.Lock()
	acked, started := s.acked, s.started
	s.mu.Unlock()
	consumer, at, err := s.j.Positions.Rewind(ctx, s.sink, acked, started)
	if err != nil {
		return next, err
	}
	s.consumer = consumer
	next.delivered = at.Delivered.Consumer
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.started {
		s.started, s.acked, next.after = true, at.AckFloor.Stream, at.AckFloor.Stream
	}
	s.j.Positions.Begin(s.sink, s.acked)
	return next, nil
}

// begin ends the earlier sessions. Records read but not given are read again, and so are
// positions lost by the stream.
func (s *Source) begin(next *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	turns, stays := s.j.Losses.History.Turns(s.turns)
	s.acked = min(s.acked, stays)
	next.after = s.acked
	for i := range s.given {
		e := &s.given[i]
		e.reply = "" // the server forgets the delivery with the reset
		e.void = e.void || e.last > stays
		if !e.void {
			next.after = e.last
		}
	}
	s.ahead = max(s.ahead, s.newest-min(s.newest, next.after))
	s.now++
	s.turns, next.turns, next.now = turns, turns, s.now
}

// read fetches and decodes ahead of Next until ctx ends.
func (s *Source) read(ctx context.Context, now session) {
	defer close(s.decoded)
	s.failed = ErrClosed
	for {
		err := s.readFrom(ctx, &now)
		if ctx.Err() != nil {
			return
		}
		s.j.log.Warn("reading the journal was interrupted", "consumer", s.name, "error", err)
		for err != nil {
			if pause.For(ctx, streamserver.RetryPause) != nil {
				return
			}
			now, err = s.open(ctx)
		}
	}
}

// errGap means a record did not reach this source.
var errGap = errors.New("records were delivered elsewhere, or not at all")

// errReconnected and errWentBack end a session: the server may be another one, or may
// have lost records.
var (
	errReconnected = errors.New("the connection was made anew")
	errWentBack    = errors.New("the stream went back")
)

// over says why a session is over, or nil.
func (s *Source) over(now *session) error {
	if turns, _ := s.j.Losses.History.Turns(now.turns); turns != now.turns {
		return errWentBack
	}
	if s.j.conn.JetStream.Conn().Stats().Reconnects != now.reconnects {
		return errReconnected
	}
	return nil
}

// readFrom passes records on. The server's count of deliveries must not jump: a missing
// record went elsewhere, and an acknowledgement behind it would lose it.
func (s *Source) readFrom(ctx context.Context, now *session) error {
	if err := s.reads.asks(ctx, s.j, now.after+1); err != nil {
		return err
	}
	it, err := s.consumer.Messages(jetstream.PullMaxMessagesWithBytesLimit(fetchRecords, s.j.readLimit()))
	if err != nil {
		return fmt.Errorf("read records: %w", err)
	}
	defer it.Stop()
	defer context.AfterFunc(ctx, it.Stop)()
	defer s.stopAtReconnect(it)()
	if err := s.over(now); err != nil {
		return err
	}
	for {
		msg, err := s.fetch(ctx, it, now)
		if err != nil {
			return err
		}
		meta, err := msg.Metadata()
		if err != nil {
			return fmt.Errorf("read a record's metadata: %w", err)
		}
		if now.delivered++; meta.Sequence.Consumer != now.delivered {
			return errGap
		}
		if err := s.take(ctx, msg, meta.Sequence.Stream, now); err != nil {
			return err
		}
	}
}

// stopAtReconnect stops the iterator at a reconnect. The returned function ends this.
func (s *Source) stopAtReconnect(it jetstream.MessagesContext) (end func()) {
	connected := s.j.conn.JetStream.Conn().StatusChanged(nats.CONNECTED)
	go func() {
		if _, again := <-connected; again {
			it.Stop()
		}
	}()
	return func() { s.j.conn.JetStream.Conn().RemoveStatusListener(connected) }
}

// take passes a record on, unless it was read before.
func (s *Source) take(ctx context.Context, msg jetstream.Msg, seq uint64, now *session) error {
	if err := s.reads.asks(ctx, s.j, seq); err != nil {
		return err
	}
	another, err := s.isAnother(ctx, history.Place{Seq: seq, Sum: record.Checksum(msg.Data())}, now)
	if err != nil {
		return err
	}
	if seq <= now.after && !another {
		s.offeredAgain(msg, seq)
		return nil
	}
	if err := s.j.Losses.NamePassed(ctx, now.after+1, seq); err != nil {
		return err
	}
	if err := s.j.Losses.HoldBefore(ctx, s.sink, datadir.Span{From: now.after + 1, To: seq - 1}); err != nil {
		return err
	}
	if err := s.pass(ctx, msg, seq, now.now); err != nil {
		return err
	}
	now.after = max(now.after, seq)
	return nil
}

// isAnother says whether the record differs from the known one at its position. Mostly the
// stream went back then, and the session ends. If its leader denies it, the servers
// disagree, and the record is delivered rather than lost.
func (s *Source) isAnother(ctx context.Context, at history.Place, now *session) (bool, error) {
	if s.j.Losses.History.Read(at) {
		return false, nil
	}
	if err := s.j.Losses.Compare(ctx); err != nil {
		return false, err
	}
	if err := s.over(now); err != nil || s.j.Losses.History.Read(at) {
		return false, err
	}
	s.j.Losses.History.Settle()
	s.j.log.Error("the servers gave out two records at one position; both are delivered",
		"stream", s.j.names.events, "position", at.Seq, "consumer", s.name)
	return true, nil
}

// fetch waits for the next record. While none comes, it asks now and then whether one
// is missing: the server may have sent it to an open request of an earlier source or
// into a broken connection, or our request is gone with the consumer's leader.
func (s *Source) fetch(ctx context.Context, it jetstream.MessagesContext, now *session) (jetstream.Msg, error) {
	missing := false
	for {
		msg, err := it.Next(jetstream.NextMaxWait(idleCheck))
		if over := s.over(now); over != nil {
			return nil, over
		}
		switch {
		case err == nil:
			return msg, nil
		case errors.Is(err, jetstream.ErrNoHeartbeat):
			continue // the iterator asks again
		case !errors.Is(err, nats.ErrTimeout):
			return nil, fmt.Errorf("read a record: %w", err)
		case missing:
			return nil, errGap // it did not come since the last look
		}
		info, err := s.consumer.Info(ctx)
		if err != nil {
			continue // the server is away; the iterator comes back with it
		}
		missing = info.Delivered.Consumer > now.delivered || info.NumPending > 0 && info.NumAckPending < positions.MaxAckPending
	}
}

// offeredAgain handles a record read before; the server offers it again after ackWait, or
// at a new session. A lost acknowledgement is repeated; a coming one will go to this
// delivery.
func (s *Source) offeredAgain(msg jetstream.Msg, seq uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if seq <= s.acked {
		s.confirm(msg.Reply(), seq) // if this is lost too, it is offered once more
		return
	}
	for i := range s.given {
		if e := &s.given[i]; e.last == seq && !e.void {
			e.reply = msg.Reply()
		}
	}
}

// pass decodes a record and hands it to Next.
func (s *Source) pass(ctx context.Context, msg jetstream.Msg, seq uint64, now int) error {
	r, fresh := s.j.decoded.Decode(seq, msg.Data())
	if fresh && r.Cut > 0 {
		s.j.log.Error("a record has events with more labels than are read; a label of each says how many were left out", "position", seq, "label", record.LabelsCut)
	}
	switch {
	case errors.Is(r.Err, record.ErrVersion):
		return s.j.Losses.HoldVersion(ctx, s.sink, seq, r.Err)
	case r.Err != nil:
		q := datadir.Quarantined{Stream: s.j.names.events, From: seq, To: seq, Reason: r.Err.Error()}
		if err := s.j.Losses.Name(ctx, q, msg.Data()); err != nil {
			return err
		}
		if err := s.j.Losses.HoldBefore(ctx, s.sink, datadir.Span{From: seq, To: seq}); err != nil {
			return err
		}
	}
	select {
	case s.decoded <- fetched{msg: msg, seq: seq, size: r.Size, now: now, events: r.Events, large: r.Large}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
