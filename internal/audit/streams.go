package audit

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"
)

// openStream opens an append-only stream, and makes it where it is missing.
func openStream(ctx context.Context, js jetstream.JetStream, want jetstream.StreamConfig) (jetstream.Stream, error) {
	stream, err := js.Stream(ctx, want.Name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		// Two relays may come here at once: the server takes the second
		// request for the same stream as done.
		if stream, err = js.CreateStream(ctx, want); err != nil {
			return nil, fmt.Errorf("create stream %s: %w", want.Name, err)
		}
		return stream, nil
	}
	if err != nil {
		return nil, fmt.Errorf("open stream %s: %w", want.Name, err)
	}
	if err := checkStream(stream.CachedInfo().Config); err != nil {
		return nil, fmt.Errorf("open stream %s: %w", want.Name, err)
	}
	return stream, nil
}

// streamConfig is a stream that only ever grows. Direct gets are off: a
// replica that lags must not answer for the newest entry.
func streamConfig(name, subject string, replicas int) jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name: name, Subjects: []string{subject}, Storage: jetstream.FileStorage,
		Replicas: max(replicas, 1), Discard: jetstream.DiscardNew,
		MaxMsgs: -1, MaxBytes: -1, MaxMsgsPerSubject: -1, MaxMsgSize: -1,
		DenyDelete: true, DenyPurge: true,
	}
}

// checkStream refuses a stream that was made by someone else and may forget.
func checkStream(c jetstream.StreamConfig) error {
	switch {
	case !c.DenyDelete || !c.DenyPurge:
		return errors.New("it is not append-only: deny_delete and deny_purge must be set")
	case c.MaxMsgs > 0 || c.MaxBytes > 0 || c.MaxAge > 0 || c.MaxMsgsPerSubject > 0:
		return errors.New("it has a limit that would drop entries")
	case c.Storage != jetstream.FileStorage:
		return errors.New("it is not kept in files")
	}
	return nil
}

// scan calls fn with each message of stream in order, up to the last one that
// there was at the start; deleted ones are passed over. fn's error ends it.
func scan(ctx context.Context, stream jetstream.Stream, fn func(seq uint64, msg jetstream.Msg) error) error {
	info, err := stream.Info(ctx)
	if err != nil {
		return fmt.Errorf("read stream state: %w", err)
	}
	if info.State.Msgs == 0 {
		return nil
	}
	consumer, err := stream.OrderedConsumer(ctx, jetstream.OrderedConsumerConfig{DeliverPolicy: jetstream.DeliverAllPolicy})
	if err != nil {
		return fmt.Errorf("read stream: %w", err)
	}
	messages, err := consumer.Messages()
	if err != nil {
		return fmt.Errorf("read stream: %w", err)
	}
	defer messages.Stop()
	for {
		msg, err := messages.Next(jetstream.NextContext(ctx))
		if err != nil {
			return fmt.Errorf("read stream: %w", err)
		}
		meta, err := msg.Metadata()
		if err != nil {
			return fmt.Errorf("read stream: %w", err)
		}
		if err := fn(meta.Sequence.Stream, msg); err != nil {
			return err
		}
		if meta.NumPending == 0 || meta.Sequence.Stream >= info.State.LastSeq {
			return nil
		}
	}
}
