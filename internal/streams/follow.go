package streams

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/auditrelay/auditrelay/internal/pause"
)

const (
	// After ackWait, the server offers an unacknowledged message again.
	ackWait = 30 * time.Second
	// ackTimeout bounds the wait for an answer to an acknowledgement.
	ackTimeout = 2 * time.Second
	// firstPause and longestPause bound the wait after a failure; longestPause is
	// well under ackWait.
	firstPause   = 100 * time.Millisecond
	longestPause = 10 * time.Second
)

// Follower reads one stream from its start and keeps its position there.
type Follower struct {
	JetStream jetstream.JetStream
	Stream    string
	Durable   string // names the kept position; of several followers of one name, one gets each message
	Logger    *slog.Logger
	// IsFinal, if set, recognises the errors of handle as the end of Run.
	IsFinal func(error) bool
}

// Run calls handle with each message in order, at least once, until ctx ends (its error)
// or handle fails for good. After any other failure it calls handle again, with growing
// pauses, for as long as it takes. It waits for a silent server in the same way. The
// position outlives restarts; after a crash the newest messages may come again.
func (f *Follower) Run(ctx context.Context, handle func(context.Context, jetstream.Msg) error) error {
	for wait := firstPause; ; wait = min(2*wait, longestPause) {
		some, err := f.follow(ctx, handle)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case f.isFinal(err):
			return err
		case some:
			wait = firstPause
		}
		f.Logger.Warn("following a stream was interrupted; it goes on", "stream", f.Stream, "again_in", wait, "error", err)
		if err := pause.For(ctx, wait); err != nil {
			return err
		}
	}
}

func (f *Follower) isFinal(err error) bool { return f.IsFinal != nil && f.IsFinal(err) }

// follow reads until something fails, and reports whether it handled any message.
func (f *Follower) follow(ctx context.Context, handle func(context.Context, jetstream.Msg) error) (some bool, err error) {
	consumer, err := f.open(ctx)
	if err != nil {
		return false, err
	}
	messages, err := consumer.Messages(jetstream.PullMaxMessages(1))
	if err != nil {
		return false, fmt.Errorf("read: %w", err)
	}
	defer messages.Stop()
	for {
		msg, err := messages.Next(jetstream.NextContext(ctx))
		if errors.Is(err, jetstream.ErrNoHeartbeat) {
			continue // a reconnect: the iterator asks again
		}
		if err != nil {
			return some, fmt.Errorf("read: %w", err)
		}
		if err := f.handOver(ctx, msg, handle); err != nil {
			return some, err
		}
		some = true
	}
}

// open opens the position and has the server offer all unacknowledged messages again.
// Otherwise a killed process's message would come again only after ackWait, and hold up
// all behind it.
func (f *Follower) open(ctx context.Context) (jetstream.Consumer, error) {
	consumer, err := f.JetStream.CreateOrUpdateConsumer(ctx, f.Stream, jetstream.ConsumerConfig{
		Durable: f.Durable, AckPolicy: jetstream.AckExplicitPolicy, AckWait: ackWait,
		DeliverPolicy: jetstream.DeliverAllPolicy,
		MaxAckPending: 1, // order: the next one comes once this one is done
	})
	if err != nil {
		return nil, fmt.Errorf("open the position: %w", err)
	}
	stream, err := f.JetStream.Stream(ctx, f.Stream)
	if err != nil {
		return nil, fmt.Errorf("read the stream's state: %w", err)
	}
	at, end := consumer.CachedInfo().AckFloor.Stream, stream.CachedInfo().State.LastSeq
	if at <= end {
		_, err = stream.ResetConsumer(ctx, f.Durable)
	} else {
		// The server lost the stream's end, and may have given some of those positions to
		// other messages: all are handled again.
		f.Logger.Error("a stream lost messages, and a position is beyond its end; it is read again from its start",
			"stream", f.Stream, "position", at, "newest", end)
		_, err = stream.ResetConsumerToSequence(ctx, f.Durable, 1)
	}
	if err != nil {
		return nil, fmt.Errorf("rewind to the last acknowledged message: %w", err)
	}
	return consumer, nil
}

// handOver calls handle until it succeeds, and then acknowledges the message. After a
// crash before the acknowledgement, the message comes again.
func (f *Follower) handOver(ctx context.Context, msg jetstream.Msg, handle func(context.Context, jetstream.Msg) error) error {
	for wait := firstPause; ; wait = min(2*wait, longestPause) {
		err := handle(ctx, msg)
		if err == nil {
			f.acknowledge(ctx, msg)
			return nil
		}
		if f.isFinal(err) {
			return err
		}
		if wait == firstPause && ctx.Err() == nil { // else it was told to stop
			f.Logger.Warn("handing on a message of a stream failed; it is tried again", "stream", f.Stream, "message", sequence(msg), "error", err)
		}
		if err := msg.InProgress(); err != nil {
			f.Logger.Debug("holding a message failed; it may come twice", "stream", f.Stream, "error", err)
		}
		if err := pause.For(ctx, wait); err != nil {
			return err
		}
	}
}

// acknowledge tries until the server has the acknowledgement: without it, the server
// would hold back the messages behind. After ackWait it offers the message again, without
// harm. After the end of ctx, acknowledge tries once.
func (f *Follower) acknowledge(ctx context.Context, msg jetstream.Msg) {
	ctx, cancel := context.WithTimeout(ctx, ackWait)
	defer cancel()
	for {
		trying, done := context.WithTimeout(context.WithoutCancel(ctx), ackTimeout)
		err := msg.DoubleAck(trying)
		done()
		if err == nil {
			return
		}
		f.Logger.Debug("acknowledging a message failed", "stream", f.Stream, "message", sequence(msg), "error", err)
		if pause.For(ctx, firstPause) != nil {
			return
		}
	}
}

// sequence is the message's place in its stream; 0 if unknown.
func sequence(msg jetstream.Msg) uint64 {
	meta, err := msg.Metadata()
	if err != nil {
		return 0
	}
	return meta.Sequence.Stream
}
