package ingest

import (
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// pipes is a listener whose connections buffer nothing.
type pipes struct {
	conns chan net.Conn
	end   chan struct{}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.end:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error   { close(p.end); return nil }
func (p *pipes) Addr() net.Addr { return &net.UnixAddr{} }

const goodHead = "POST /loki/api/v1/push HTTP/1.1\r\nHost: x\r\nAuthorization: Basic dXNlcjpjb3JyZWN0IGhvcnNl\r\n"

// TestNobodyHoldsAConnection has clients fall silent at different points, without
// closing: the server cuts each off in time.
func TestNobodyHoldsAConnection(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		says   string
		reads  bool
		within time.Duration
	}{
		"nothing is said":                       {"", true, 10 * time.Second},
		"a header without its end":              {"POST /loki/api/v1/push HTTP/1.1\r\nHost:", true, 10 * time.Second},
		"no body to a path that is not there":   {"POST /nothing HTTP/1.1\r\nHost: x\r\nContent-Length: 9999\r\n\r\n", true, 10 * time.Second},
		"no body with a type that is not taken": {goodHead + "Content-Length: 9999\r\n\r\n", true, 10 * time.Second},
		"no body of a push":                     {goodHead + "Content-Type: application/json\r\nContent-Length: 9999\r\n\r\n", true, 10 * time.Second},
		"nothing behind a push":                 {goodHead + "Content-Type: application/json\r\nContent-Length: 54\r\n\r\n" + good, true, 2 * time.Minute},
		"the answer is not read":                {goodHead + "Content-Type: application/json\r\nContent-Length: 54\r\n\r\n" + good, false, answerTime},
		"the answer to a stranger is not read":  {"GET / HTTP/1.1\r\nHost: x\r\n\r\n", false, answerTime},
		"the answer to no HTTP is not read":     {strings.Repeat("x", 100) + "\r\n\r\n", false, 10*time.Second + 2*time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				h := New(Options{
					Credentials: fakeCredentials{}, Journal: &fakeJournal{}, Limits: testLimits(),
					Logger: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry(),
				})
				listener := &pipes{conns: make(chan net.Conn), end: make(chan struct{})}
				server := h.Server()
				go func() { _ = server.Serve(listener) }()
				client, served := net.Pipe()
				listener.conns <- served
				defer synctest.Wait()
				defer func() { require.NoError(t, server.Close()) }()
				began := time.Now()
				_, _ = io.WriteString(client, c.says) // may be cut off before its end
				if c.reads {
					_, _ = io.Copy(io.Discard, client)
				} else {
					waitClosed(t, client)
				}
				assert.LessOrEqual(t, time.Since(began), c.within+3*time.Second)
			})
		})
	}
}

// waitClosed finds out without reading: a write to a closed pipe fails.
func waitClosed(t *testing.T, c net.Conn) {
	t.Helper()
	for began := time.Now(); ; time.Sleep(time.Second) {
		require.Less(t, time.Since(began), time.Hour, "it is held for ever")
		_ = c.SetWriteDeadline(time.Now().Add(time.Second / 2))
		if _, err := c.Write([]byte{'\n'}); err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			return
		}
	}
}
