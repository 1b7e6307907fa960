package journal

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/auditrelay/auditrelay/internal/datadir"
	"github.com/auditrelay/auditrelay/internal/streamserver"
)

// retry publishes the record again, with the same id, while that may help, and makes room
// for it once. The record then stands behind those committed meanwhile.
//
// After a longer outage the sender is told to push again, and that push has another id:
// if the record was kept after all, its events stand twice, with the same event ids.
func (c *committer) retry(msg *nats.Msg, ack *jetstream.PubAck, err error, epoch *datadir.Epoch, deadline time.Time) (*jetstream.PubAck, error) {
	ctx := context.Background()
	ack, err = streamserver.Republish(ctx, c.js, msg, ack, err, epoch, deadline)
	if streamserver.IsFull(err) && c.waitForRoom(ctx, msg, deadline) == nil {
		ack, err = streamserver.Publish(ctx, c.js, msg)
		ack, err = streamserver.Republish(ctx, c.js, msg, ack, err, epoch, deadline)
	}
	switch {
	case err == nil:
		return ack, nil
	case streamserver.IsFull(err):
		return nil, fmt.Errorf("%w: %w", ErrFull, err)
	}
	return nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
}

// waitForRoom waits until a trim of delivered records has made room for the record.
func (c *committer) waitForRoom(ctx context.Context, msg *nats.Msg, deadline time.Time) error {
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	return c.makeRoom(ctx, int64(storedSize(msg)))
}
