package ingest

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// guessed is a handler in a bubble, where time passes at once.
type guessed struct {
	t        *testing.T
	h        *Handler
	server   *http.Server
	listener *pipes
	log      bytes.Buffer
}

func newGuessed(t *testing.T) *guessed {
	t.Helper()
	g := &guessed{t: t, listener: &pipes{conns: make(chan net.Conn), end: make(chan struct{})}}
	g.h = New(Options{
		Credentials: fakeCredentials{}, Journal: &fakeJournal{}, Limits: testLimits(),
		Logger: slog.New(slog.NewTextHandler(&lockedWriter{w: &g.log}, nil)), Registerer: prometheus.NewRegistry(),
	})
	g.server = g.h.Server()
	go func() { _ = g.server.Serve(g.listener) }()
	return g
}

// push pushes from an address, and measures the time to the answer.
func (g *guessed) push(from, username, password string, header ...string) (status int, took time.Duration) {
	g.t.Helper()
	client, served := net.Pipe()
	defer func() { _ = client.Close() }()
	g.listener.conns <- from2{served, from}
	began := time.Now()
	_, err := fmt.Fprintf(client, "POST /loki/api/v1/push HTTP/1.1\r\nHost: x\r\nAuthorization: Basic %s\r\nContent-Type: application/json\r\n%sContent-Length: %d\r\n\r\n",
		base64.StdEncoding.EncodeToString([]byte(username+":"+password)), strings.Join(header, ""), len(good))
	require.NoError(g.t, err)
	go func() { _, _ = io.WriteString(client, good) }()
	resp, err := http.ReadResponse(bufio.NewReader(client), nil)
	require.NoError(g.t, err)
	defer func() { _ = resp.Body.Close() }()
	return resp.StatusCode, time.Since(began)
}

// from2 is a connection from an address.
type from2 struct {
	net.Conn
	from string
}

func (f from2) RemoteAddr() net.Addr {
	return net.TCPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(f.from), 1234))
}

func TestGuessingIsSlow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newGuessed(t)
		defer synctest.Wait()
		defer func() { require.NoError(t, g.server.Close()) }()
		var all []time.Duration
		for range 9 {
			status, took := g.push("192.0.2.1", "user", "wrong")
			require.Equal(t, http.StatusUnauthorized, status)
			all = append(all, took)
			status, took = g.push("192.0.2.1", "user", "correct horse")
			require.Equal(t, http.StatusNoContent, status)
			require.Zero(t, took, "a good credential is not delayed")
		}
		ms := time.Millisecond
		assert.Equal(t, []time.Duration{100 * ms, 200 * ms, 400 * ms, 800 * ms, 1600 * ms, 3200 * ms, 5000 * ms, 5000 * ms, 5000 * ms}, all)
		_, took := g.push("192.0.2.2", "user", "wrong")
		assert.Equal(t, firstDelay, took, "another address")
		time.Sleep(forgiveAfter)
		_, took = g.push("192.0.2.1", "user", "wrong")
		assert.Equal(t, firstDelay, took, "later")
	})
}

func TestAShutdownDoesNotWaitForAGuess(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newGuessed(t)
		for range 8 {
			g.push("192.0.2.1", "user", "wrong")
		}
		began := time.Now()
		ended := make(chan error)
		go func() {
			time.Sleep(time.Second)
			ended <- g.server.Shutdown(t.Context())
		}()
		status, _ := g.push("192.0.2.1", "user", "wrong")
		assert.Equal(t, http.StatusUnauthorized, status)
		assert.Equal(t, time.Second, time.Since(began))
		assert.NoError(t, <-ended)
		synctest.Wait()
	})
}

func TestGuessesAreTold(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newGuessed(t)
		defer synctest.Wait()
		defer func() { require.NoError(t, g.server.Close()) }()
		for range 5 {
			g.push("192.0.2.1", "user", "hunter2-of-some-length")
		}
		g.push("192.0.2.3", "no\nbody\x1b[31m"+strings.Repeat("x", 500), "hunter2-of-some-length", "X-Forwarded-For: 10.9.9.9, 198.51.100.7\r\n")
		g.push("192.0.2.4", "", "", "DD-API-KEY: hunter2-is-a-key-that-ends-in-wxyz\r\n")
		text := g.log.String()
		assert.Equal(t, 3, strings.Count(text, "its credential is not valid"), "one line an address: %s", text)
		assert.Contains(t, text, "username=user peer=192.0.2.1:1234 project=acme environment=live failures=1")
		assert.Contains(t, text, `no body [31mxxx`)
		assert.Contains(t, text, `forwarded_for=198.51.100.7`)
		assert.Contains(t, text, "api_key_last_four=wxyz")
		assert.NotContains(t, text, "hunter2")
		assert.NotContains(t, text, strings.Repeat("x", 70))
		time.Sleep(guessLogEvery)
		g.push("192.0.2.1", "user", "hunter2-of-some-length")
		assert.Contains(t, g.log.String(), "failures=6 unlogged_before=4")
		count := func(labels ...string) float64 {
			return testutil.ToFloat64(g.h.metrics.unauthorized.WithLabelValues(labels...))
		}
		assert.InDelta(t, 6, count("acme", "live", "wrong"), 0)
		assert.InDelta(t, 2, count("", "", "wrong"), 0)
		before := strings.Count(g.log.String(), "\n")
		for i := range 100 { // from everywhere: ten lines, and one every six seconds
			g.push(fmt.Sprintf("198.51.100.%d", i), "user", "wrong")
		}
		assert.LessOrEqual(t, strings.Count(g.log.String(), "\n")-before, 15)
	})
}

func TestGuessersAreBounded(t *testing.T) {
	t.Parallel()
	now := time.Unix(1, 0)
	g := newGuesses(slog.New(slog.DiscardHandler), func() time.Time { return now })
	for i := range maxGuessers + 500 {
		g.failed(&http.Request{RemoteAddr: fmt.Sprintf("10.%d.%d.%d:1", i>>16, i>>8&255, i&255)}, claim{}, testEnv)
		require.LessOrEqual(t, len(g.addresses), maxGuessers)
	}
	now = now.Add(forgiveAfter)
	g.failed(&http.Request{RemoteAddr: "192.0.2.1:1"}, claim{}, testEnv)
	assert.Len(t, g.addresses, 1, "those of long ago are forgotten")
}
