package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/auditrelay/auditrelay/internal/retry"
	"github.com/auditrelay/auditrelay/internal/store"
)

// patience is how long an append or a put is tried.
const patience = 15 * time.Second

// insist calls try, which stores something, until the cluster has it or refuses it. Each try
// carries the same message id. A try ends the matter with [store.ErrConflict]; a refusal by an
// expected sequence means that another write was under way.
func (s *Store) insist(ctx context.Context, try func(context.Context) (uint64, error)) (uint64, error) {
	maybe := false // an earlier try may have stored it
	for deadline := time.Now().Add(s.patience); ; {
		got, err := try(ctx)
		if err == nil || errors.Is(err, store.ErrConflict) {
			return got, err
		}
		final, busy := refusal(err), isWrongSequence(err)
		maybe = maybe || final == nil && !busy && !isUnsent(err)
		if final == nil && (time.Now().Add(retryPause).After(deadline) || retry.Sleep(ctx, retryPause) != nil) {
			final = store.ErrUnknown
			if busy { // somebody else was writing all the while
				final = store.ErrConflict
			}
		}
		if final != nil && maybe {
			final = store.ErrUnknown
		}
		if final != nil {
			return 0, fmt.Errorf("%w: %w", final, err)
		}
	}
}

// refusal is the reason why no later try can succeed either. It returns nil if one can.
func refusal(err error) error {
	switch {
	case errors.Is(err, nats.ErrConnectionClosed):
		return store.ErrClosed
	case isFull(err):
		return store.ErrFull
	case errors.Is(err, nats.ErrMaxPayload): // the server of the last reconnect takes less
		return store.ErrTooLarge
	}
	return nil
}

// isUnsent recognises the failures of a try that reached no server.
func isUnsent(err error) bool {
	return errors.Is(err, nats.ErrConnectionReconnecting) || errors.Is(err, nats.ErrReconnectBufExceeded) || errors.Is(err, nats.ErrNoResponders)
}

// publish publishes a message, and returns its sequence.
func (s *Store) publish(ctx context.Context, m *nats.Msg) (seq uint64, err error) {
	answer, err := s.js.Conn().RequestMsgWithContext(ctx, m)
	if err != nil {
		return 0, err
	}
	var ack struct {
		Error *jetstream.APIError `json:"error"`
		Seq   uint64              `json:"seq"`
	}
	if err := json.Unmarshal(answer.Data, &ack); err != nil {
		return 0, fmt.Errorf("read the answer to a publish: %w", err)
	}
	if ack.Error != nil {
		return 0, ack.Error
	}
	return ack.Seq, nil
}
