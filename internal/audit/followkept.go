package audit

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/auditrelay/auditrelay/internal/pause"
	"github.com/auditrelay/auditrelay/internal/streams"
)

// CheckpointSubject is the subject of checkpoints' events: the trail's own.
const CheckpointSubject = ownSubject

const (
	// entriesPause is the wait between two looks at whether entries were handled.
	entriesPause = 100 * time.Millisecond
	// A follower more than maxBehind checkpoints behind passes over some: a newer
	// checkpoint vouches for all entries under an older one.
	maxBehind = 64
)

// FollowCheckpoints calls handle with each good checkpoint in order, at least once, as
// [Trail.Follow] does with entries. A checkpoint comes after all its entries were handled by
// whoever follows these under the same name. While the follower is far behind, as when it
// starts on an old trail, some are passed over; the newest never is.
func (t *Trail) FollowCheckpoints(ctx context.Context, durable string, handle func(ctx context.Context, c Kept) error) error {
	select {
	case <-ctx.Done():
		return fmt.Errorf("follow checkpoints: %w", ctx.Err())
	case <-t.opened:
	}
	f := &streams.Follower{JetStream: t.js, Stream: t.checkpointsName(), Durable: durable, Logger: t.log}
	err := f.Run(ctx, func(ctx context.Context, msg jetstream.Msg) error {
		meta, err := msg.Metadata()
		if err != nil {
			return err
		}
		if meta.NumPending > maxBehind {
			return nil
		}
		c, err := kept(keyPair{public: t.PublicKey()}, Message{meta.Sequence.Stream, msg.Subject(), msg.Headers(), msg.Data()})
		if err != nil {
			return nil //nolint:nilerr // the trail names it when it is read back
		}
		if err := t.handled(ctx, durable, c.Base+c.Size, msg.InProgress); err != nil {
			return err
		}
		if c.Time.IsZero() {
			c.Time = meta.Timestamp.UTC()
		}
		return handle(ctx, c)
	})
	return fmt.Errorf("follow checkpoints: %w", err)
}

// handled returns once the follower of the entries has handled those before end, or all
// readable ones. Meanwhile it calls wait: the server must not offer the checkpoint again.
func (t *Trail) handled(ctx context.Context, durable string, end int64, wait func() error) error {
	for {
		consumer, err := t.entries.Consumer(ctx, durable)
		switch {
		case errors.Is(err, jetstream.ErrConsumerNotFound): // its follower has not begun
		case err != nil:
			return fmt.Errorf("ask how far the entries were handled: %w", err)
		default:
			info := consumer.CachedInfo()
			if int64(info.AckFloor.Stream) >= end || info.NumPending == 0 && info.NumAckPending == 0 {
				return nil
			}
		}
		if err := errors.Join(wait(), pause.For(ctx, entriesPause)); err != nil {
			return err
		}
	}
}
