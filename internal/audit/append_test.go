package audit

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/testbed/natstest"
)

// lossyServer gives connections that break, when armed, just before they would
// hand over an acknowledgement of the named stream.
type lossyServer struct {
	*server.Server
	armed  atomic.Int32 // acknowledgements to lose
	marker []byte
}

func (s *lossyServer) InProcessConn() (net.Conn, error) {
	conn, err := s.Server.InProcessConn()
	return &lossyConn{conn, s}, err
}

type lossyConn struct {
	net.Conn
	server *lossyServer
}

func (c *lossyConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if err == nil && c.server.armed.Load() > 0 && bytes.Contains(p[:n], c.server.marker) {
		c.server.armed.Add(-1)
		return 0, errors.Join(io.EOF, c.Close())
	}
	return n, err
}

func startLossy(t *testing.T, stream string) (jetstream.JetStream, *lossyServer) {
	t.Helper()
	lossy := &lossyServer{Server: natstest.Run(t, t.TempDir(), natstest.SyncAlways), marker: []byte(`{"stream":"` + stream + `",`)}
	return natstest.JetStream(t, lossy, nats.ReconnectWait(time.Millisecond), nats.MaxReconnects(-1)), lossy
}

func TestLostAcknowledgement(t *testing.T) {
	t.Parallel()
	js, lossy := startLossy(t, "TEST_AUDIT")
	trail := openTrail(t, js, testOptions(t))
	appendEntries(t, trail, 0, 3)
	lossy.armed.Store(1)
	index, err := trail.Append(t.Context(), testEntry(3)) // stored, unheard, sent again
	require.NoError(t, err)
	require.Zero(t, lossy.armed.Load(), "no acknowledgement was lost")
	require.EqualValues(t, 3, index)
	appendEntries(t, trail, 4, 6)
	requireWhole(t, trail, 6)
}

// TestLostAcknowledgementAndGivenUp: the caller's context ends before the
// answer; what it does next must not add the change again.
func TestLostAcknowledgementAndGivenUp(t *testing.T) {
	t.Parallel()
	js, lossy := startLossy(t, "TEST_AUDIT")
	trail := openTrail(t, js, testOptions(t))
	lossy.armed.Store(1)
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	_, err := trail.AppendIf(ctx, testEntry(0), -1)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	_, err = trail.AppendIf(t.Context(), testEntry(0), -1)
	require.ErrorIs(t, err, ErrConflict)
	index, err := trail.AppendIf(t.Context(), testEntry(3), 0)
	require.NoError(t, err)
	require.EqualValues(t, 1, index)
	requireWhole(t, trail, 2)
}

// Nobody is told of an entry, and no checkpoint of it is signed, before the name of its
// file is durable. The same holds for a checkpoint and its pin.
func TestAnAcknowledgementWaitsForTheNameOfABlock(t *testing.T) {
	t.Parallel()
	js, _ := startServer(t, t.TempDir())
	var mu sync.Mutex
	failing := map[string]bool{}
	fail := func(streams ...string) {
		mu.Lock()
		defer mu.Unlock()
		clear(failing)
		for _, s := range streams {
			failing[s] = true
		}
	}
	lost := errors.New("fsync failed")
	o := testOptions(t)
	o.Settle = func(stream string) error {
		mu.Lock()
		defer mu.Unlock()
		if failing[stream] {
			return lost
		}
		return nil
	}
	trail := openTrail(t, js, o)
	appendEntries(t, trail, 0, 2)
	waitSigned(t, trail, 2)

	fail("TEST_AUDIT")
	_, err := trail.Append(t.Context(), testEntry(2))
	require.ErrorIs(t, err, lost)
	require.ErrorIs(t, trail.sign(t.Context()), lost, "the entry may be lost yet")
	pinned, err := os.ReadFile(o.KeyFile + ".checkpoint")
	require.NoError(t, err)
	fail("TEST_CHECKPOINTS")
	appendEntries(t, trail, 3, 4)
	waitSigned(t, trail, 4)
	now, err := os.ReadFile(o.KeyFile + ".checkpoint")
	require.NoError(t, err)
	require.Equal(t, string(pinned), string(now))
	fail()
	appendEntries(t, trail, 4, 5)
	waitSigned(t, trail, 5)
	requireWhole(t, trail, 5)
}

func TestLostCheckpointAcknowledgement(t *testing.T) {
	t.Parallel()
	js, lossy := startLossy(t, "TEST_CHECKPOINTS")
	trail := openTrail(t, js, testOptions(t))
	lossy.armed.Store(1)
	appendEntries(t, trail, 0, 1)
	waitSigned(t, trail, 1)
	require.Zero(t, lossy.armed.Load(), "no acknowledgement was lost")
	appendEntries(t, trail, 1, 2)
	waitSigned(t, trail, 2)
	requireWhole(t, trail, 2)
}

// Two relays that share the streams but not the key: the second stops at the first's
// checkpoints, and does not begin a generation whenever it sees one. A start does.
func TestAnotherKeyEndsSigning(t *testing.T) {
	t.Parallel()
	js, _ := startServer(t, t.TempDir())
	one, other := testOptions(t), testOptions(t)
	other.SignEvery = time.Hour
	a, b := openTrail(t, js, one), openTrail(t, js, other)
	appendEntries(t, a, 0, 2)
	waitSigned(t, a, 2)
	_, err := b.Append(t.Context(), testEntry(2))
	require.NoError(t, err) // it has not looked at the checkpoints yet
	require.ErrorIs(t, b.Close(t.Context()), ErrUnavailable)
	c := openTrail(t, js, other)
	require.Len(t, c.Generations(), 2)
	last, _, err := c.Last(t.Context(), OwnProject, "", ownSubject)
	require.NoError(t, err)
	require.Equal(t, TypeGeneration, last.Type)
	require.Contains(t, string(last.Detail), a.PublicKey())
}

func TestAppendWithoutServer(t *testing.T) {
	t.Parallel()
	js, stop := startServer(t, filepath.Join(t.TempDir(), "store"))
	trail := openTrail(t, js, testOptions(t))
	stop()
	_, err := trail.Append(t.Context(), testEntry(0))
	require.Error(t, err)
}
