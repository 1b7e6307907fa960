package workspacesim

import (
	"context"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// pipes is a listener in memory: its dial connects to it.
type pipes struct {
	accepted chan net.Conn
	closed   chan struct{}
	close    func()
}

func newPipes() *pipes {
	p := &pipes{accepted: make(chan net.Conn), closed: make(chan struct{})}
	p.close = sync.OnceFunc(func() { close(p.closed) })
	return p
}

func (p *pipes) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	ours, theirs := net.Pipe()
	select {
	case p.accepted <- theirs:
		return ours, nil
	case <-p.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.accepted:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error   { p.close(); return nil }
func (p *pipes) Addr() net.Addr { return &net.TCPAddr{} }

// Under a faked clock, six hours of held events pass in no time, and arrive late with their
// own times.
func TestSixHoursOfHeldEvents(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		pushes, to := 0, newPipes()
		server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			mu.Lock()
			defer mu.Unlock()
			pushes++
			w.WriteHeader(http.StatusNoContent)
		})}
		go func() { _ = server.Serve(to) }()
		sim, err := New(Options{Projects: 1, Rate: 0.1, PushEvery: 10 * time.Second, Dial: to.dial})
		require.NoError(t, err)
		require.NoError(t, sim.CreateStreaming("acme-portal", "production", "GRAFANA_LOKI",
			[]byte(`{"grafana_loki":{"hostname":"127.0.0.1:1","username":"u","password":"pass-word-1234"}}`)))
		require.NoError(t, sim.SetStreamFaults("acme-portal", "production", StreamFaults{Hold: true}))
		sim.Start(t.Context())
		time.Sleep(6 * time.Hour)
		held := sim.Ledgers()[0]
		assert.InDelta(t, 2160, held.Generated, 2)
		assert.Equal(t, held.Generated, held.InFlight)
		require.NoError(t, sim.SetStreamFaults("acme-portal", "production", StreamFaults{}))
		sim.Pause()
		require.NoError(t, sim.Wait(t.Context()))
		assert.Equal(t, held.Generated, sim.Ledgers()[0].Counts.Acknowledged)
		sim.Stop()
		require.NoError(t, server.Close())
		mu.Lock()
		defer mu.Unlock()
		assert.Less(t, pushes, 20, "a burst")
	})
}
