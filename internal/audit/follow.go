package audit

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

const (
	followAckWait    = 30 * time.Second
	followMaxBackoff = 10 * time.Second
)

// Follow calls handle for each entry in order, at least once, and returns when
// ctx ends (its error) or an entry cannot be read. Where handle fails it is
// called again, with growing pauses, for as long as it takes. The position is
// kept under the name durable, over restarts; after a crash the newest entries
// may come again. Of several who follow under one name, one gets each entry.
func (t *Trail) Follow(ctx context.Context, durable string, handle func(ctx context.Context, index int64, e Entry) error) error {
	consumer, err := t.entries.CreateOrUpdateConsumer(ctx, jetstream.ConsumerConfig{
		Durable: durable, AckPolicy: jetstream.AckExplicitPolicy, AckWait: followAckWait,
		DeliverPolicy: jetstream.DeliverAllPolicy,
		MaxAckPending: 1, // order: the next entry comes once this one is done
	})
	if err != nil {
		return fmt.Errorf("follow audit trail: %w", err)
	}
	messages, err := consumer.Messages(jetstream.PullMaxMessages(1))
	if err != nil {
		return fmt.Errorf("follow audit trail: %w", err)
	}
	defer messages.Stop()
	for {
		msg, err := messages.Next(jetstream.NextContext(ctx))
		if errors.Is(err, jetstream.ErrNoHeartbeat) {
			continue // a reconnect: the iterator asks again
		}
		if err != nil {
			return fmt.Errorf("follow audit trail: %w", err)
		}
		if err := t.handOver(ctx, msg, handle); err != nil {
			return fmt.Errorf("follow audit trail: %w", err)
		}
	}
}

// handOver calls handle until it succeeds. A crash before the Ack brings the
// entry again.
func (t *Trail) handOver(ctx context.Context, msg jetstream.Msg, handle func(context.Context, int64, Entry) error) error {
	meta, err := msg.Metadata()
	if err != nil {
		return err
	}
	e, err := t.decode(msg.Subject(), msg.Headers(), msg.Data(), meta.Sequence.Stream)
	if err != nil {
		return err
	}
	for pause := 100 * time.Millisecond; ; pause = min(2*pause, followMaxBackoff) {
		err := handle(ctx, e.Index, e)
		if err == nil {
			return msg.Ack() // a lost one brings the entry again
		}
		if pause == 100*time.Millisecond {
			t.log.Warn("handing on an audit entry failed; it is tried again", "index", e.Index, "error", err)
		}
		if err := msg.InProgress(); err != nil && ctx.Err() == nil {
			t.log.Debug("holding an audit entry failed", "error", err)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause):
		}
	}
}
