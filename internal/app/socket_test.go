package app

import (
	"bufio"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// held is a listening socket as a service manager holds it.
func held(t *testing.T) (*os.File, string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	file, err := listener.(*net.TCPListener).File()
	require.NoError(t, err)
	require.NoError(t, listener.Close())
	t.Cleanup(func() { _ = file.Close() })
	return file, listener.Addr().String()
}

// rawPush sends a push on a connection of its own, and returns what reads its answer.
func rawPush(t *testing.T, conn net.Conn) (answer func() (farewell bool)) {
	t.Helper()
	req, err := http.NewRequest(http.MethodPost, "http://relay/loki/api/v1/push", strings.NewReader(`{"streams":[{"stream":{"a":"b"},"values":[["1","{}"]]}]}`))
	require.NoError(t, err)
	req.SetBasicAuth("u", "a-password-of-some-length")
	req.Header.Set("Content-Type", "application/json")
	require.NoError(t, req.Write(conn))
	return func() bool {
		resp, err := http.ReadResponse(bufio.NewReader(conn), req)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.Equal(t, http.StatusNoContent, resp.StatusCode)
		return resp.Close
	}
}

func dial(t *testing.T, address string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// A push that comes while no relay runs waits in the socket, and the next relay answers it. A relay
// that stops tells its clients so with their answers, and closes no connection between them.
func TestTheSocketOutlivesTheRelay(t *testing.T) {
	t.Parallel()
	file, address := held(t)
	cfg := testConfig(t.TempDir())
	cfg.Ingest.Listen = address
	begin := func() *running {
		return startWith(t, cfg, Options{Logger: slog.New(slog.DiscardHandler), Socket: NewSocket(file)})
	}
	r := begin()
	var kept []net.Conn
	for range 8 {
		kept = append(kept, dial(t, address))
		assert.False(t, rawPush(t, kept[len(kept)-1])())
	}
	var pushing sync.WaitGroup // on all at once: one that is quiet for long is closed without a farewell
	for _, conn := range kept {
		pushing.Go(func() {
			for !rawPush(t, conn)() { //nolint:revive // until the farewell
			}
		})
	}
	require.NoError(t, r.stop())
	pushing.Wait()

	between := rawPush(t, dial(t, address))
	r = begin()
	between()
	require.NoError(t, r.stop())
}

// Without an owner, the relay's own socket is kept open for the process that replaces it.
func TestTheSocketIsKeptForASuccessor(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t.TempDir())
	socket := NewSocket(nil)
	r := startWith(t, cfg, Options{Logger: slog.New(slog.DiscardHandler), Socket: socket})
	require.Nil(t, socket.File())
	socket.Keep()
	require.NoError(t, r.stop())
	require.NotNil(t, socket.File())
	waits := rawPush(t, dial(t, r.Ingest))
	cfg.Ingest.Listen = r.Ingest
	next := startWith(t, cfg, Options{Logger: slog.New(slog.DiscardHandler), Socket: NewSocket(socket.File())})
	waits()
	require.NoError(t, next.stop())
	require.NoError(t, socket.File().Close())
}

func TestAnotherSocketIsRefused(t *testing.T) {
	t.Parallel()
	file, address := held(t)
	for listen, refused := range map[string]bool{
		address: false, "127.0.0.1:0": false, "localhost:0": false, "127.0.0.1:1": true, "127.0.0.2:0": true, ":0": true,
	} {
		listener, err := NewSocket(file).listen(t.Context(), listen)
		if refused {
			require.ErrorContains(t, err, "the listening socket that was handed over is at "+address, listen)
			continue
		}
		require.NoError(t, err, listen)
		require.NoError(t, listener.Close())
	}
	cfg := testConfig(t.TempDir())
	cfg.Ingest.Listen = "127.0.0.2:0"
	err := Run(t.Context(), cfg, Options{Logger: slog.New(slog.DiscardHandler), Socket: NewSocket(file)})
	require.ErrorContains(t, err, "ingest.listen 127.0.0.2:0: the listening socket that was handed over is at "+address)
}
