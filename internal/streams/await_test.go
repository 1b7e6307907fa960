package streams

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// errNotAvailable is the answer of a node without a leader.
var errNotAvailable = fmt.Errorf("open stream: %w", &jetstream.APIError{Code: 503, ErrorCode: 10008, Description: "JetStream system temporarily unavailable"})

func TestAwaitGoesOnUntilTheClusterIsThere(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		start, calls := time.Now(), 0
		err := Await(t.Context(), slog.New(slog.NewTextHandler(&log, nil)), "the stream", func(context.Context) error {
			if calls++; calls <= 10 {
				return errNotAvailable
			}
			return nil
		})
		require.NoError(t, err)
		assert.Equal(t, 11, calls)
		assert.Equal(t, 10*pauseBetween, time.Since(start))
		assert.Equal(t, 1, bytes.Count(log.Bytes(), []byte("waiting for the journal's servers")), "told once")
	})
}

func TestAwaitEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		discard := slog.New(slog.DiscardHandler)
		start := time.Now()
		err := Await(t.Context(), discard, "", func(context.Context) error { return errNotAvailable })
		require.ErrorIs(t, err, errNotAvailable)
		assert.InDelta(t, Patience, time.Since(start), float64(2*pauseBetween), "with its patience")

		start = time.Now()
		final := errors.New("damaged")
		require.ErrorIs(t, Await(t.Context(), discard, "", func(context.Context) error { return final }), final)
		assert.Zero(t, time.Since(start), "at once where it fails for good")

		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err = Await(ctx, discard, "", func(context.Context) error { return errNotAvailable })
		require.ErrorIs(t, err, errNotAvailable)
		assert.Equal(t, time.Second, time.Since(start), "with its context")
	})
}

func TestWhatIsWaitedFor(t *testing.T) {
	t.Parallel()
	_, refused := net.Dial("tcp", "127.0.0.1:1")
	_, noFile := os.Open("/no/such/file")
	for _, c := range []struct {
		err  error
		wait bool
	}{
		{errNotAvailable, true},
		{&jetstream.APIError{Code: 500, ErrorCode: 10119}, true},
		{context.DeadlineExceeded, true},
		{nats.ErrNoServers, true},
		{refused, true},
		{&net.DNSError{Err: "no such host", IsNotFound: true}, true},
		{jetstream.ErrStreamNotFound, false},
		{nats.ErrAuthorization, false},
		{context.Canceled, false},
		{noFile, false},
	} {
		assert.Equal(t, c.wait, isComingUp(fmt.Errorf("open: %w", c.err)), "%v", c.err)
	}
}
