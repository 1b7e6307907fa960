package journal

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/auditrelay/auditrelay/internal/datadir"
	"github.com/auditrelay/auditrelay/internal/datadir/natsserver"
	"github.com/auditrelay/auditrelay/internal/pause"
)

// retry publishes the record again, with the same id, while that may help. The record
// then stands behind those committed meanwhile.
//
// The server knows an id for the stream's duplicate window, which exceeds
// commitTimeout and a last attempt together. After a longer outage the sender is told
// to push again, and that push has another id: if the record was kept after all, its
// events stand twice, with the same event ids.
//
// retry stops when the server's epoch ends: the next server may know the id from a
// record whose fsync failed, and would acknowledge it as a duplicate.
func (c *committer) retry(ctx context.Context, msg *nats.Msg, ack *jetstream.PubAck, err error, epoch *datadir.Epoch, deadline time.Time) (*jetstream.PubAck, error) {
	roomMade := false
	for err != nil && epoch.Ended() == nil && time.Now().Add(retryPause).Before(deadline) {
		switch {
		case isFull(err) && !roomMade:
			roomMade = true
			if c.waitForRoom(ctx, msg, deadline) != nil {
				return nil, refusalOf(err)
			}
		case !mayPass(err):
			return nil, refusalOf(err)
		default:
			if pause.For(ctx, retryPause) != nil {
				return nil, refusalOf(err)
			}
		}
		attempt, cancel := context.WithTimeout(ctx, attemptTimeout)
		ack, err = c.js.PublishMsg(attempt, msg)
		cancel()
	}
	switch ended := epoch.Ended(); {
	case err == nil:
		return ack, nil
	case ended != nil:
		return nil, fmt.Errorf("%w: %w", ErrUnavailable, ended)
	}
	return nil, refusalOf(err)
}

func refusalOf(err error) error {
	if isFull(err) {
		return fmt.Errorf("%w: %w", ErrFull, err)
	}
	return fmt.Errorf("%w: %w", ErrUnavailable, err)
}

// waitForRoom waits until delivered records were trimmed to make room for the record.
func (c *committer) waitForRoom(ctx context.Context, msg *nats.Msg, deadline time.Time) error {
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	return c.makeRoom(ctx, int64(storedSize(msg)))
}

// mayPass says whether publishing the same record again may help. It does not help if
// another server takes less than the record was made for: then the next push makes a
// smaller one.
func mayPass(err error) bool { return !isFull(err) && !errors.Is(err, nats.ErrMaxPayload) }

// isFull recognises a refusal for want of space: by the stream's MaxBytes, an account's
// limit, or the server's.
func isFull(err error) bool {
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
