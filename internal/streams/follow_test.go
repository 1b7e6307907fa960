package streams

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/testbed/natstest"
	"github.com/auditrelay/auditrelay/internal/testbed/waiting"
)

// stream makes a stream on a server, with a client that reconnects to it.
func stream(t *testing.T, srv *server.Server) jetstream.JetStream {
	t.Helper()
	nc, err := nats.Connect(srv.ClientURL(), nats.MaxReconnects(-1), nats.ReconnectWait(10*time.Millisecond), nats.ReconnectBufSize(-1))
	require.NoError(t, err)
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	require.NoError(t, err)
	_, err = js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "S", Subjects: []string{"s"}})
	require.NoError(t, err)
	return js
}

// publish adds the messages from to to-1, and repeats each until the server takes it.
func publish(t *testing.T, js jetstream.JetStream, from, to int) {
	t.Helper()
	for i := from; i < to; i++ {
		waiting.Until(t, func() bool {
			_, err := js.Publish(t.Context(), "s", []byte(strconv.Itoa(i)), jetstream.WithMsgID(strconv.Itoa(i)))
			return err == nil
		})
	}
}

// follow runs a follower until stop is called. handled lists its messages.
func follow(t *testing.T, js jetstream.JetStream, handle func(message string) error) (handled func() []string, stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var mu sync.Mutex
	var seen []string
	ended := make(chan error, 1)
	f := &Follower{JetStream: js, Stream: "S", Durable: "d", Logger: slog.New(slog.DiscardHandler), IsFinal: func(err error) bool { return errors.Is(err, errFinal) }}
	go func() {
		ended <- f.Run(ctx, func(_ context.Context, msg jetstream.Msg) error {
			if err := handle(string(msg.Data())); err != nil {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			seen = append(seen, string(msg.Data()))
			return nil
		})
	}()
	handled = func() []string {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(seen)
	}
	return handled, func() error { cancel(); return <-ended }
}

var errFinal = errors.New("it is damaged")

// The follower waits out a server's absence, with a message in hand or without, and then
// handles the rest in order.
func TestFollowOutlivesTheServer(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	srv := natstest.Run(t, dir)
	port := srv.Addr().(*net.TCPAddr).Port
	js := stream(t, srv)
	reached, away := make(chan struct{}), make(chan struct{})
	handled, stop := follow(t, js, func(message string) error {
		if message == "1" {
			close(reached)
			<-away // its acknowledgement cannot be sent now
		}
		return nil
	})
	publish(t, js, 0, 4)
	<-reached
	srv.Shutdown()
	srv.WaitForShutdown()
	close(away)
	waiting.Until(t, func() bool { return len(handled()) == 2 })
	srv = natstest.Run(t, dir, natstest.Port(port))
	waiting.Until(t, func() bool { return len(handled()) == 4 })
	srv.Shutdown()
	srv.WaitForShutdown()
	natstest.Run(t, dir, natstest.Port(port))
	publish(t, js, 4, 6)
	waiting.Until(t, func() bool { return len(handled()) == 6 })
	require.ErrorIs(t, stop(), context.Canceled)
	assert.Equal(t, []string{"0", "1", "2", "3", "4", "5"}, handled())
}

// A failed message is tried again, and holds up the ones behind it.
func TestFollowTriesAgain(t *testing.T) {
	t.Parallel()
	js := stream(t, natstest.Run(t, t.TempDir()))
	publish(t, js, 0, 3)
	failures := 3
	handled, stop := follow(t, js, func(message string) error {
		if message == "1" && failures > 0 {
			failures--
			return errors.New("the journal is full")
		}
		return nil
	})
	waiting.Until(t, func() bool { return len(handled()) == 3 })
	require.ErrorIs(t, stop(), context.Canceled)
	assert.Equal(t, []string{"0", "1", "2"}, handled())
	assert.Zero(t, failures)
}

func TestFollowEndsWhereItFailsForGood(t *testing.T) {
	t.Parallel()
	js := stream(t, natstest.Run(t, t.TempDir()))
	publish(t, js, 0, 1)
	f := &Follower{JetStream: js, Stream: "S", Durable: "d", Logger: slog.New(slog.DiscardHandler), IsFinal: func(err error) bool { return errors.Is(err, errFinal) }}
	require.ErrorIs(t, f.Run(t.Context(), func(context.Context, jetstream.Msg) error { return errFinal }), errFinal)
}

// A killed process leaves a message without an acknowledgement. The next process gets it
// at once, as if for the first time, and not only after ackWait.
func TestFollowAfterAKill(t *testing.T) {
	t.Parallel()
	js := stream(t, natstest.Run(t, t.TempDir()))
	publish(t, js, 0, 3)
	killed := &Follower{JetStream: js, Stream: "S", Durable: "d", Logger: slog.New(slog.DiscardHandler), IsFinal: func(error) bool { return true }}
	require.Error(t, killed.Run(t.Context(), func(context.Context, jetstream.Msg) error { return errFinal }))

	var handled []string
	next := &Follower{JetStream: js, Stream: "S", Durable: "d", Logger: slog.New(slog.DiscardHandler), IsFinal: func(error) bool { return len(handled) == 3 }}
	err := next.Run(t.Context(), func(_ context.Context, msg jetstream.Msg) error {
		meta, err := msg.Metadata()
		require.NoError(t, err)
		assert.EqualValues(t, 1, meta.NumDelivered, "message %s came again after a wait", msg.Data())
		if handled = append(handled, string(msg.Data())); len(handled) == 3 {
			return errFinal
		}
		return nil
	})
	require.ErrorIs(t, err, errFinal)
	assert.Equal(t, []string{"0", "1", "2"}, handled)
}

// A server without its stream's lost end gives the same positions to new messages. The
// follower cannot tell them apart, and handles all again.
func TestFollowAStreamThatLostItsEnd(t *testing.T) {
	t.Parallel()
	js := stream(t, natstest.Run(t, t.TempDir()))
	publish(t, js, 0, 3)
	handled, stop := follow(t, js, func(string) error { return nil })
	waiting.Until(t, func() bool { return len(handled()) == 3 })
	require.ErrorIs(t, stop(), context.Canceled)
	s, err := js.Stream(t.Context(), "S")
	require.NoError(t, err)
	// The position is ahead of the stream, as after a crash between the two writes.
	_, err = s.ResetConsumerToSequence(t.Context(), "d", 11)
	require.NoError(t, err)

	publish(t, js, 3, 5)
	handled, stop = follow(t, js, func(string) error { return nil })
	publish(t, js, 5, 6)
	waiting.Until(t, func() bool { return len(handled()) >= 6 })
	require.ErrorIs(t, stop(), context.Canceled)
	assert.Equal(t, []string{"0", "1", "2", "3", "4", "5"}, handled(), "which of them are new cannot be told")
}
