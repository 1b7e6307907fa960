package audit

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// openStream opens one of the trail's streams, and makes it where it is missing. An
// empty one with a past is made to go on behind its last message.
func (t *Trail) openStream(ctx context.Context, name, subject string) (jetstream.Stream, error) {
	want := streamConfig(name, subject, t.replicas)
	stream, err := openStream(ctx, t.js, want)
	if err != nil || stream.CachedInfo().State.LastSeq > 0 || t.noted(name) == 0 {
		return stream, err
	}
	// Only now: a folder whose description is lost may have kept its messages.
	if err := t.remake(ctx, want, uint64(t.noted(name))); err != nil {
		return nil, err
	}
	return openStream(ctx, t.js, want)
}

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

// streamConfig is an append-only stream. Direct gets are off: a lagging replica must
// not answer for the newest entry.
func streamConfig(name, subject string, replicas int) jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name: name, Subjects: []string{subject}, Storage: jetstream.FileStorage,
		Replicas: max(replicas, 1), Discard: jetstream.DiscardNew,
		MaxMsgs: -1, MaxBytes: -1, MaxMsgsPerSubject: -1, MaxMsgSize: -1,
		DenyDelete: true, DenyPurge: true,
	}
}

// checkStream refuses a stream if someone else made it and it may forget.
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

const (
	// scanPatience is how long a reader waits for the next message before it asks
	// whether there is one; scanTries is how often it asks.
	scanPatience = 2 * time.Second
	scanTries    = 30
)

// scan calls fn with each message of stream in order, up to the last one at the start,
// and returns its sequence; unreadable messages are passed over. Of a subject only,
// where one is given. fn's error ends it.
func scan(ctx context.Context, stream jetstream.Stream, subject string, fn func(seq uint64, msg jetstream.Msg) error) (last uint64, err error) {
	info, err := stream.Info(ctx)
	if err != nil {
		return 0, fmt.Errorf("read stream state: %w", err)
	}
	last = info.State.LastSeq
	if info.State.Msgs == 0 {
		return last, nil
	}
	config := jetstream.OrderedConsumerConfig{DeliverPolicy: jetstream.DeliverAllPolicy}
	if subject != "" {
		config.FilterSubjects = []string{subject}
	}
	consumer, err := stream.OrderedConsumer(ctx, config)
	if err != nil {
		return last, fmt.Errorf("read stream: %w", err)
	}
	if info, err := consumer.Info(ctx); err != nil {
		return last, fmt.Errorf("read stream: %w", err)
	} else if info.NumPending == 0 {
		return last, nil
	}
	messages, err := consumer.Messages()
	if err != nil {
		return last, fmt.Errorf("read stream: %w", err)
	}
	defer messages.Stop()
	return last, scanMessages(ctx, consumer, messages, last, fn)
}

func scanMessages(ctx context.Context, consumer jetstream.Consumer, messages jetstream.MessagesContext, last uint64, fn func(seq uint64, msg jetstream.Msg) error) error {
	for tries := 0; ; {
		waiting, cancel := context.WithTimeout(ctx, scanPatience)
		msg, err := messages.Next(jetstream.NextContext(waiting))
		cancel()
		if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil && tries < scanTries {
			// The server passes over unreadable messages in silence, the last too.
			tries++
			if info, err := consumer.Info(ctx); err == nil && info.NumPending == 0 {
				return nil
			}
			continue
		}
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
		if meta.NumPending == 0 || meta.Sequence.Stream >= last {
			return nil
		}
		tries = 0
	}
}
