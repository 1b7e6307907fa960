package journal

import (
	"bytes"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/testbed/waiting"
	"github.com/auditrelay/auditrelay/relay/relaytest"
)

// line is a route to a server, and can lose the server's answers.
type line struct {
	to    string
	l     net.Listener
	deaf  atomic.Bool
	lost  atomic.Int64 // lost bytes
	until atomic.Value // a string: the line goes deaf at it
	mu    sync.Mutex
	conns []net.Conn // guarded by mu
}

func newLine(t *testing.T, to string) *line {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p := &line{to: to, l: l}
	t.Cleanup(func() { _ = l.Close(); p.cut() })
	go func() {
		for {
			from, err := l.Accept()
			if err != nil {
				return
			}
			p.serve(from)
		}
	}()
	return p
}

func (p *line) serve(from net.Conn) {
	to, err := net.Dial("tcp", p.to)
	if err != nil {
		_ = from.Close()
		return
	}
	p.mu.Lock()
	p.conns = append(p.conns, from, to)
	p.mu.Unlock()
	go func() { _, _ = io.Copy(to, from); _ = to.Close() }()
	go func() { _, _ = io.Copy(hearing{from, p}, to); _ = from.Close() }()
}

// hearing passes on the answers, unless the line is deaf.
type hearing struct {
	net.Conn
	line *line
}

func (h hearing) Write(b []byte) (int, error) {
	if text, ok := h.line.until.Load().(string); ok && text != "" && bytes.Contains(b, []byte(text)) {
		h.line.deaf.Store(true)
	}
	if h.line.deaf.Load() {
		h.line.lost.Add(int64(len(b)))
		return len(b), nil
	}
	return h.Conn.Write(b)
}

// cut ends the connections; later ones hear again.
func (p *line) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.until.Store("")
	p.deaf.Store(false)
	for _, c := range p.conns {
		_ = c.Close()
	}
	p.conns = nil
}

// overLine opens a journal over a line to a server of its own. The function counts the
// server's messages in a stream, beside the line.
func overLine(t *testing.T) (*opened, *line, func(stream string) uint64) {
	t.Helper()
	srv := startExternal(t, t.TempDir(), 0)
	nc, err := nats.Connect(srv.ClientURL())
	require.NoError(t, err)
	t.Cleanup(nc.Close)
	beside, err := jetstream.New(nc)
	require.NoError(t, err)
	p := newLine(t, srv.Addr().String())
	cfg := testConfig
	cfg.URL = "nats://" + p.l.Addr().String()
	j := open(t, t.TempDir(), cfg)
	t.Cleanup(func() { j.shut(t) })
	return j, p, func(stream string) uint64 {
		s, err := beside.Stream(t.Context(), stream)
		if !assert.NoError(t, err) {
			return 0
		}
		return s.CachedInfo().State.Msgs
	}
}

// The server keeps a record, and its answer is lost with the connection.
// The server recognises the next attempt.
func TestALostAnswerLeavesOneRecord(t *testing.T) {
	t.Parallel()
	j, p, messages := overLine(t)
	for n := range uint64(2) {
		p.deaf.Store(true)
		kept := make(chan error, 1)
		go func() { kept <- j.Append(t.Context(), batchOf(relaytest.Events(1))) }()
		waiting.Until(t, func() bool { return messages(j.names.events) == n+1 })
		select {
		case err := <-kept:
			require.Fail(t, "it did not wait for the answer", "%v", err)
		default:
		}
		p.cut()
		require.NoError(t, <-kept)
		assert.Equal(t, n+1, messages(j.names.events))
	}
}

// While the answer to a record is missing, appends behind it go to the server all the same.
func TestALostAnswerHoldsUpNothing(t *testing.T) {
	t.Parallel()
	j, p, messages := overLine(t)
	p.deaf.Store(true)
	kept := make(chan error, 2)
	for n := range 2 {
		go func() { kept <- j.Append(t.Context(), batchOf(relaytest.Events(1, relaytest.From(n)))) }()
		waiting.Until(t, func() bool { return messages(j.names.events) == uint64(n)+1 })
	}
	p.cut()
	require.NoError(t, <-kept)
	require.NoError(t, <-kept)
}

// While one answer is overdue, single appends are answered as soon as ever, the second of
// them too.
func TestOneOverdueAnswerHoldsUpNothing(t *testing.T) {
	t.Parallel()
	j, p, _ := overLine(t)
	push := func(n int) error { return j.Append(t.Context(), batchOf(relaytest.Events(1, relaytest.From(n)))) }
	overdue := make(chan error, 1)
	p.deaf.Store(true)
	go func() { overdue <- push(0) }()
	waiting.Until(t, func() bool { return p.lost.Load() > 0 })
	p.deaf.Store(false)
	for n := range 3 {
		require.NoError(t, push(n+1))
	}
	select {
	case err := <-overdue:
		require.Fail(t, "they waited for the answer that was lost", "%v", err)
	default:
	}
	require.NoError(t, <-overdue)
}
