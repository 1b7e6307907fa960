package cluster

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/store"
	"github.com/auditrelay/auditrelay/internal/store/lease"
	"github.com/auditrelay/auditrelay/internal/testbed/natstest"
	"github.com/auditrelay/auditrelay/internal/testbed/waiting"
)

// line is a route to a server, and can lose the server's answers.
type line struct {
	to    string
	l     net.Listener
	deaf  atomic.Bool
	lost  atomic.Int64 // lost bytes
	until atomic.Value // a string: the line goes deaf at it
	held  sync.RWMutex // locked while answers have to wait
	slow  atomic.Int64 // nanoseconds that an answer takes
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
	h.line.held.RLock()
	defer h.line.held.RUnlock()
	time.Sleep(time.Duration(h.line.slow.Load())) // as a slow network
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

// overLine opens a store over a line to a server of its own. The function counts the
// server's messages on a subject of a stream, by another connection.
func overLine(t *testing.T) (*backend, *line, func(stream, subject string) uint64) {
	t.Helper()
	srv := natstest.Run(t, t.TempDir(), natstest.SyncAlways)
	js := natstest.JetStream(t, srv)
	p := newLine(t, srv.Addr().String())
	b := newBackend(t, "nats://"+p.l.Addr().String(), 1)
	return b, p, func(stream, subject string) uint64 {
		s, err := js.Stream(t.Context(), stream)
		if !assert.NoError(t, err) {
			return 0
		}
		info, err := s.Info(t.Context(), jetstream.WithSubjectFilter(subject))
		if !assert.NoError(t, err) {
			return 0
		}
		if subject == stream {
			return info.State.LastSeq
		}
		return info.State.Subjects[subject]
	}
}

// The server keeps what was appended or put, and its answer is lost with the connection. The
// next try finds it.
func TestALostAnswerStoresOnce(t *testing.T) {
	t.Parallel()
	b, p, count := overLine(t)
	l, table := b.log(t, "events"), b.store.table
	end := func() store.Pos {
		pos, _ := l.known.suspects()
		return pos.Pos
	}
	many := make([]store.Draft, 20)
	for i := range many {
		many[i].Data = []byte{byte(i)}
	}
	for name, c := range map[string]struct {
		appended uint64
		do       func() error
		until    string
	}{
		"one": {1, func() error { _, err := l.Append(t.Context(), store.Draft{}); return err }, ""},
		"some": {20, func() error {
			first, err := l.Append(t.Context(), many...)
			assert.Equal(t, end(), first+19)
			return err
		}, `"batch":`},
		"one at a place": {1, func() error {
			before := end()
			first, err := l.AppendAt(t.Context(), before, store.Draft{})
			assert.Equal(t, before+1, first)
			return err
		}, ""},
		"some at a place": {20, func() error {
			before := end()
			first, err := l.AppendAt(t.Context(), before, many...)
			assert.Equal(t, before+1, first)
			return err
		}, `"batch":`},
	} {
		for range 2 {
			before := count(l.stream, l.stream)
			if c.until == "" {
				p.deaf.Store(true)
			} else {
				p.until.Store(c.until) // the answer to the commit
			}
			kept := make(chan error, 1)
			go func() { kept <- c.do() }()
			waiting.Until(t, func() bool { return count(l.stream, l.stream) == before+c.appended }, name)
			waiting.Until(t, func() bool { return p.lost.Load() > 0 }, name)
			select {
			case err := <-kept:
				require.Fail(t, "it did not wait for the answer", "%s: %v", name, err)
			default:
			}
			p.cut()
			p.lost.Store(0)
			require.NoError(t, <-kept, name)
			assert.Equal(t, before+c.appended, count(l.stream, l.stream), name)
		}
	}
	records, gaps := read(t, l, 1)
	assert.Empty(t, gaps)
	assert.Len(t, records, 2*(1+20+1+20))

	rev, err := table.Put(t.Context(), "k", []byte("0"), store.If{Key: "k"})
	require.NoError(t, err)
	for i := range 2 {
		p.deaf.Store(true)
		put, revs := make(chan error, 1), make(chan uint64, 1)
		go func() {
			got, err := table.Put(t.Context(), "k", fmt.Append(nil, i+1), store.If{Key: "k", Rev: rev})
			revs <- got
			put <- err
		}()
		waiting.Until(t, func() bool { return p.lost.Load() > 0 })
		p.cut()
		p.lost.Store(0)
		require.NoError(t, <-put)
		rev = <-revs
		v, err := table.Get(t.Context(), "k")
		require.NoError(t, err)
		assert.Equal(t, store.Value{Key: "k", Rev: rev, Data: fmt.Append(nil, i+1)}, v)
	}
}

// The servers have forgotten the message's id when the next try comes. A conditional write finds
// what it has stored all the same.
func TestAnAnswerIsLostForLong(t *testing.T) {
	t.Parallel()
	b, p, count := overLine(t)
	l, table := b.log(t, "events"), b.store.table
	const window = 100 * time.Millisecond // the shortest that servers have
	for _, stream := range []string{l.stream, table.stream} {
		info, err := b.store.info(t.Context(), stream)
		require.NoError(t, err)
		info.Config.Duplicates = window
		_, err = b.store.js.UpdateStream(t.Context(), info.Config)
		require.NoError(t, err)
	}
	late := func(answer string, do func() error) error {
		t.Helper()
		p.until.Store(answer)
		done := make(chan error, 1)
		go func() { done <- do() }()
		waiting.Until(t, func() bool { return p.lost.Load() > 0 })
		lost := time.Now()
		waiting.Until(t, func() bool { return time.Since(lost) > 3*window })
		p.cut()
		p.lost.Store(0)
		return <-done
	}
	held := store.If{Key: "epoch"}
	var err error
	held.Rev, err = table.Put(t.Context(), "epoch", []byte("one"), held)
	require.NoError(t, err)
	require.NoError(t, late(`"seq":`, func() (err error) {
		held.Rev, err = table.Put(t.Context(), "epoch", []byte("two"), held)
		return err
	}))
	_, err = table.Put(t.Context(), "position", []byte("1"), held)
	require.NoError(t, err, "the epoch is the one that was written")

	drafts := []store.Draft{{Data: []byte("1")}, {Data: []byte("2")}}
	require.NoError(t, late(`"batch":`, func() error {
		first, err := l.AppendAt(t.Context(), 0, drafts...)
		assert.Equal(t, store.Pos(1), first)
		return err
	}))
	assert.EqualValues(t, 2, count(l.stream, l.stream))

	b.Kill(t)
	l = b.log(t, "events") // the next start has the servers know ids for long enough
	require.NoError(t, late(`"seq":`, func() error { _, err := l.Append(t.Context(), drafts[0]); return err }))
	assert.EqualValues(t, 3, count(l.stream, l.stream))
}

// A heartbeat whose first answer is lost is tried again before other relays take its writer for dead.
func TestALostAnswerCostsNoHeartbeat(t *testing.T) {
	t.Parallel()
	attempts := firstPatience + retryPause + 2*firstPatience
	require.Less(t, attempts, lease.DefaultTiming.Dead, "two attempts fit")
	b, p, count := overLine(t)
	put := make(chan error, 1)
	p.deaf.Store(true)
	go func() {
		_, err := b.store.table.Put(t.Context(), "k", []byte("0"), store.If{Key: "k"})
		put <- err
	}()
	waiting.Until(t, func() bool { return p.lost.Load() > 0 && count(b.store.table.stream, b.store.table.subject("k")) == 1 })
	p.deaf.Store(false) // the connection stays, and nobody tells that the answer is lost
	require.NoError(t, <-put)
	assert.EqualValues(t, 1, count(b.store.table.stream, b.store.table.subject("k")))
}

// What takes longer than the first attempt is put, and heard, all the same.
func TestASlowLeaderIsHeard(t *testing.T) {
	t.Parallel()
	b, p, _ := overLine(t)
	table := b.store.table
	heard := make(chan store.Value, 2)
	go func() {
		for v, err := range table.Watch(t.Context(), "k") {
			if err != nil {
				return
			}
			heard <- v
		}
	}()
	rev, err := table.Put(t.Context(), "k", []byte("0"), store.If{Key: "k"})
	require.NoError(t, err)
	assert.Equal(t, store.Value{Key: "k", Rev: rev, Data: []byte("0")}, <-heard)
	p.slow.Store(int64(firstPatience + firstPatience/5))
	rev, err = table.Put(t.Context(), "k", []byte("1"), store.If{Key: "k", Rev: rev})
	require.NoError(t, err)
	waiting.Until(t, func() bool { return len(heard) > 0 }, "it is not heard")
	assert.Equal(t, store.Value{Key: "k", Rev: rev, Data: []byte("1")}, <-heard)
	p.slow.Store(0)
}

// While the answer to an append is missing, others go to the server all the same, and are
// answered.
func TestALostAnswerHoldsUpNothing(t *testing.T) {
	t.Parallel()
	b, p, count := overLine(t)
	l := b.log(t, "events")
	appendOne := func(n int) error {
		_, err := l.Append(t.Context(), store.Draft{Data: fmt.Append(nil, n)})
		return err
	}
	p.deaf.Store(true)
	overdue := make(chan error, 1)
	go func() { overdue <- appendOne(0) }()
	waiting.Until(t, func() bool { return count(l.stream, l.stream) == 1 })
	waiting.Until(t, func() bool { return p.lost.Load() > 0 })
	p.deaf.Store(false)
	for n := range 3 {
		require.NoError(t, appendOne(n+1))
	}
	select {
	case err := <-overdue:
		require.Fail(t, "they waited for the answer that was lost", "%v", err)
	default:
	}
	p.cut()
	require.NoError(t, <-overdue)
	records, gaps := read(t, l, 1)
	assert.Empty(t, gaps)
	assert.Len(t, records, 4)
}

// A reader whose connection breaks in the middle of an answer gives each record once.
func TestAReaderSurvivesItsConnection(t *testing.T) {
	t.Parallel()
	b, p, _ := overLine(t)
	l := b.log(t, "events")
	const n = 2000
	for i := range n / 500 {
		drafts := make([]store.Draft, 500)
		for k := range drafts {
			drafts[k].Data = fmt.Append(nil, i*500+k+1)
		}
		_, err := l.Append(t.Context(), drafts...)
		require.NoError(t, err)
	}
	next := store.Pos(1)
	for item, err := range l.Read(t.Context(), 1, false) {
		require.NoError(t, err)
		require.NotNil(t, item.Record, "%+v", item.Gap)
		require.Equal(t, next, item.Record.Pos)
		require.Equal(t, fmt.Sprint(next), string(item.Record.Data))
		switch next {
		case 300, 900, 1500:
			p.cut()
		}
		next++
	}
	assert.EqualValues(t, n+1, next)
}
