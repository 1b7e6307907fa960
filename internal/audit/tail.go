package audit

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/mod/sumdb/tlog"
)

// Recorded is an entry as the trail has it.
type Recorded struct {
	Entry
	// Record is the entry's canonical JSON, as it is now.
	Record []byte
	// Leaf is the hash of its Merkle leaf.
	Leaf tlog.Hash
	// Unsound: the entry is unlike the signed one, or was when the trail was read back
	// last. It proves nothing.
	Unsound bool
}

// Get returns one entry. ErrMissing says there is none under the index, or no readable one.
func (t *Trail) Get(ctx context.Context, index int64) (Recorded, error) {
	if err := t.isOpen(); err != nil {
		return Recorded{}, err
	}
	if index < 0 {
		return Recorded{}, fmt.Errorf("%w: entry %d", ErrMissing, index)
	}
	if e, ok := t.fromCopy(index); ok {
		return e, nil
	}
	msg, err := t.entries.GetMsg(ctx, uint64(index)+1)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return Recorded{}, fmt.Errorf("%w: entry %d", ErrMissing, index)
	}
	if err != nil {
		return Recorded{}, fmt.Errorf("read entry %d: %w", index, err)
	}
	return t.recorded(Message{msg.Sequence, msg.Subject, msg.Header, msg.Data})
}

// Tail calls handle with each readable entry from index from on, in order. It calls
// caughtUp after the last one, now and at each later end, with the number of
// entries there are, and waits for new ones until ctx ends. The errors of both end it; so does an outage of the servers.
func (t *Trail) Tail(ctx context.Context, from int64, handle func(Recorded) error, caughtUp func(end int64) error) error {
	if err := t.isOpen(); err != nil {
		return err
	}
	next := max(from, 0)
	return t.follow(ctx, t.entries, uint64(next)+1, func(m Message) error {
		if err := t.copiesBetween(next, int64(m.Seq)-1, handle); err != nil {
			return err
		}
		next = max(next, int64(m.Seq))
		e, err := t.recorded(m)
		switch {
		case errors.Is(err, ErrMissing), errors.Is(err, ErrDamaged):
			return nil // the trail names it
		case err != nil:
			return err
		}
		return handle(e)
	}, func(end int64) error {
		if err := t.copiesBetween(next, end, handle); err != nil {
			return err
		}
		next = max(next, end)
		return caughtUp(end)
	})
}

// follow is Tail for one of the trail's streams, from the sequence from on.
func (t *Trail) follow(ctx context.Context, stream jetstream.Stream, from uint64, handle func(Message) error, caughtUp func(end int64) error) error {
	consumer, err := stream.OrderedConsumer(ctx, jetstream.OrderedConsumerConfig{
		DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: from,
	})
	if err != nil {
		return fmt.Errorf("follow the audit trail: %w", err)
	}
	messages, err := consumer.Messages()
	if err != nil {
		return fmt.Errorf("follow the audit trail: %w", err)
	}
	defer messages.Stop()
	tail := &tail{stream: stream, consumer: consumer, messages: messages, handle: handle, seq: from - 1}
	for {
		end, err := tail.run(ctx)
		if err != nil {
			return err
		}
		if err := caughtUp(end); err != nil {
			return err
		}
		if err := tail.next(ctx); err != nil {
			return err
		}
	}
}

// Each is Tail up to the trail's end as it is now.
func (t *Trail) Each(ctx context.Context, from int64, handle func(Recorded) error) error {
	err := t.Tail(ctx, from, handle, func(int64) error { return errEnd })
	if errors.Is(err, errEnd) {
		return nil
	}
	return err
}

var errEnd = errors.New("the trail has no more entries")

// tail reads the messages behind a sequence.
type tail struct {
	stream   jetstream.Stream
	consumer jetstream.Consumer
	messages jetstream.MessagesContext
	handle   func(Message) error
	seq      uint64 // of the newest message
}

// run hands over the messages now in the stream, and returns their number.
func (r *tail) run(ctx context.Context) (end int64, err error) {
	info, err := r.stream.Info(ctx)
	if err != nil {
		return 0, fmt.Errorf("follow the audit trail: %w", err)
	}
	end = int64(info.State.LastSeq)
	for r.seq < info.State.LastSeq {
		waiting, cancel := context.WithTimeout(ctx, scanPatience)
		err := r.next(waiting)
		cancel()
		if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
			// The server passes over unreadable messages in silence, the last one too.
			if info, err := r.consumer.Info(ctx); err == nil && info.NumPending == 0 {
				return end, nil
			}
			continue
		}
		if err != nil {
			return 0, err
		}
	}
	return end, nil
}

// next hands over the next message.
func (r *tail) next(ctx context.Context) error {
	msg, err := r.messages.Next(jetstream.NextContext(ctx))
	if err != nil {
		return fmt.Errorf("follow the audit trail: %w", err)
	}
	meta, err := msg.Metadata()
	if err != nil {
		return fmt.Errorf("follow the audit trail: %w", err)
	}
	r.seq = max(r.seq, meta.Sequence.Stream)
	return r.handle(Message{meta.Sequence.Stream, msg.Subject(), msg.Headers(), msg.Data()})
}

func (t *Trail) recorded(m Message) (Recorded, error) {
	if e, ok := t.fromCopy(int64(m.Seq) - 1); ok {
		return e, nil
	}
	e, err := t.codec.recorded(t.prefix, m)
	e.Unsound = contains(t.view.Load().passed, e.Index)
	return e, err
}

// recorded decodes a message. ErrMissing stands for the place of a lost entry.
func (c *codec) recorded(prefix string, m Message) (Recorded, error) {
	if m.Header.Get(lostHeader) != "" {
		return Recorded{}, fmt.Errorf("%w: entry %d", ErrMissing, m.Seq-1)
	}
	e, record, err := c.open(prefix, m)
	if err != nil {
		return Recorded{}, err
	}
	return Recorded{Entry: e, Record: record, Leaf: leafHash(record)}, nil
}
