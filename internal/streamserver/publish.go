package streamserver

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/auditrelay/auditrelay/internal/datadir"
	"github.com/auditrelay/auditrelay/internal/datadir/natsserver"
	"github.com/auditrelay/auditrelay/internal/pause"
)

const (
	// PublishTimeout bounds one attempt to publish; a change of leader takes some seconds.
	PublishTimeout = 5 * time.Second
	// RetryPause is the wait before another attempt.
	RetryPause = 200 * time.Millisecond
)

// Await waits for the answer to an asynchronous publish. The connection gives up after
// PublishTimeout, so an answer always comes.
func Await(ack jetstream.PubAckFuture, epoch *datadir.Epoch) (*jetstream.PubAck, error) {
	select {
	case got := <-ack.Ok():
		return got, nil
	case err := <-ack.Err():
		return nil, err
	case <-epoch.Over():
		return nil, epoch.Ended()
	}
}

// Publish makes one attempt, and waits for the answer.
func Publish(ctx context.Context, js jetstream.JetStream, m *nats.Msg) (*jetstream.PubAck, error) {
	ctx, cancel := context.WithTimeout(ctx, PublishTimeout)
	defer cancel()
	return js.PublishMsg(ctx, m)
}

// Put publishes a message, and returns once it is durable: a new file's name, too.
func (c *Conn) Put(ctx context.Context, stream string, m *nats.Msg, opts ...jetstream.PublishOpt) error {
	if _, err := c.JetStream.PublishMsg(ctx, m, opts...); err != nil {
		return err
	}
	return c.Settle(stream)
}

// Republish publishes a message again, with the same message id, as long as its last
// attempt failed with a passing error. ack and err are its outcome; Republish
// returns the newest. The server recognises an id within the stream's duplicate window:
// longer than the time until deadline and a last attempt together.
//
// The end of the epoch ends it, with the epoch's error: the next server may know the id
// from a message whose fsync failed, and would acknowledge it as a duplicate.
func Republish(ctx context.Context, js jetstream.JetStream, m *nats.Msg, ack *jetstream.PubAck, err error, epoch *datadir.Epoch, deadline time.Time) (*jetstream.PubAck, error) {
	for err != nil && MayPass(err) && epoch.Ended() == nil && time.Now().Add(RetryPause).Before(deadline) {
		if pause.For(ctx, RetryPause) != nil {
			break
		}
		ack, err = Publish(ctx, js, m)
	}
	if ended := epoch.Ended(); err != nil && ended != nil {
		return nil, ended
	}
	return ack, err
}

// MayPass says whether the same message may succeed later. A full server refuses it
// again, and so does one with a smaller limit than before.
func MayPass(err error) bool { return !IsFull(err) && !errors.Is(err, nats.ErrMaxPayload) }

// IsFull recognises a refusal for want of space: by the stream's MaxBytes, an account's
// limit, or the server's.
func IsFull(err error) bool {
	var api *jetstream.APIError
	if !errors.As(err, &api) {
		return false
	}
	const storeFailed, accountLimit, noResources = 10077, 10002, 10023
	switch api.ErrorCode {
	case storeFailed:
		return strings.Contains(api.Description, natsserver.FullError)
	case accountLimit, noResources:
		return true
	}
	return false
}
