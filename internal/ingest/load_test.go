package ingest

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/ingest/received"
	"github.com/auditrelay/auditrelay/internal/testbed/waiting"
)

// allocated measures the bytes allocated by f, garbage included.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// TestBombs sends bodies that decompress to far more than the allowed bytes.
// It measures the whole process, so it runs alone.
func TestBombs(t *testing.T) {
	r := start(t, func(o *Options) { o.Limits.DecompressedBytes, o.Limits.LabelBytes = 2<<20, 128<<10 })
	zeros := make([]byte, 48<<20)
	bombs := map[string][]byte{
		"gzip":    gzipOf(t, zeros),
		"deflate": zlibOf(t, zeros),
		"zstd":    zstdOf(t, zeros, zstd.WithWindowSize(64<<10)),
	}
	window := zstdOf(t, zeros[:20<<20], zstd.WithWindowSize(16<<20))
	for name, body := range bombs {
		require.Less(t, len(body), 1<<20)
		used := allocated(func() {
			got := r.send(t, "POST", "/api/v2/logs", asJSON.with("Content-Encoding", name), body)
			assert.Equal(t, http.StatusRequestEntityTooLarge, got.status, name)
			assert.Contains(t, got.body, "the body has more than the allowed 2097152 bytes when decompressed", name)
		})
		assert.Less(t, used, uint64(16<<20), name)
	}
	used := allocated(func() {
		got := r.send(t, "POST", "/api/v2/logs", asJSON.with("Content-Encoding", "zstd"), window)
		assert.Equal(t, http.StatusRequestEntityTooLarge, got.status)
		assert.Contains(t, got.body, "window")
	})
	assert.Less(t, used, uint64(8<<20))
	// Labels before every other line would be written each time.
	var amplified strings.Builder
	amplified.WriteString(`{"streams":[{"stream":{"a":"` + strings.Repeat("x", 100_000) + `"},"values":[["1","x"]`)
	for range 400 {
		amplified.WriteString(`,["1","{}"],["1","x"]`)
	}
	amplified.WriteString(`]}]}`)
	used = allocated(func() {
		got := r.push(t, amplified.String())
		assert.Equal(t, http.StatusRequestEntityTooLarge, got.status, got.body)
	})
	assert.Less(t, used, uint64(40<<20))
	assert.Zero(t, r.handler.memory.used.Load())
}

// dial opens a connection and writes a push's header.
func dial(t *testing.T, r *rig, length int) (net.Conn, *bufio.Reader) {
	t.Helper()
	var d net.Dialer
	c, err := d.DialContext(t.Context(), "tcp", r.Listener.Addr().String())
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	require.NoError(t, c.SetDeadline(time.Now().Add(waiting.Stall)))
	_, err = fmt.Fprintf(c, "POST /loki/api/v1/push HTTP/1.1\r\nHost: x\r\nAuthorization: Basic dXNlcjpjb3JyZWN0IGhvcnNl\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", length)
	require.NoError(t, err)
	return c, bufio.NewReader(c)
}

func status(t *testing.T, br *bufio.Reader) int {
	t.Helper()
	resp, err := http.ReadResponse(br, nil)
	require.NoError(t, err)
	_, _ = io.Copy(io.Discard, resp.Body)
	require.NoError(t, resp.Body.Close())
	return resp.StatusCode
}

// TestSlowClients holds many nearly idle connections, while others push.
func TestSlowClients(t *testing.T) {
	t.Parallel()
	r := start(t, func(o *Options) {
		o.Limits.ReadTimeout = 15 * time.Second
		o.Limits.Concurrent = 1
		o.Limits.InFlightBytes = 4 << 20
	})
	var slow []*bufio.Reader
	for i := range 300 {
		c, br := dial(t, r, 1<<20)
		if i%2 == 0 {
			_, err := c.Write([]byte(`{"str`))
			require.NoError(t, err)
		}
		slow = append(slow, br)
	}
	began := time.Now()
	assert.Equal(t, http.StatusNoContent, r.push(t, good).status, "the slow ones hold no slot and no memory")
	for _, br := range slow {
		require.Equal(t, http.StatusRequestTimeout, status(t, br))
	}
	assert.Less(t, time.Since(began), 15*time.Second, "minimum progress is asked for")
	assert.Zero(t, r.handler.memory.used.Load())
	// A connection once slow enough to need the deadline is not cut off later, while the
	// journal takes its time.
	assert.Equal(t, http.StatusNoContent, r.push(t, good).status)
}

// TestDeadlineIsLifted uses a journal slower than a client may be.
func TestDeadlineIsLifted(t *testing.T) {
	t.Parallel()
	hold := make(chan struct{})
	j := &fakeJournal{hold: hold}
	r := start(t, func(o *Options) { o.Journal = j; o.Limits.ReadTimeout = 2 * time.Second })
	time.AfterFunc(2500*time.Millisecond, func() { close(hold) })
	assert.Equal(t, http.StatusNoContent, r.push(t, good).status)
	assert.Equal(t, 1, j.taken())
}

func TestTooManyAtOnce(t *testing.T) {
	t.Parallel()
	hold := make(chan struct{})
	j := &fakeJournal{hold: hold}
	r := start(t, func(o *Options) { o.Journal = j; o.Limits.Concurrent = 1 })
	done := make(chan answer)
	go func() { done <- r.push(t, good) }()
	waiting.Until(t, func() bool { return len(r.handler.slots) == 1 })
	got := r.push(t, good)
	assert.Equal(t, http.StatusTooManyRequests, got.status)
	assert.Equal(t, "1", got.header.Get("Retry-After"))
	close(hold)
	assert.Equal(t, http.StatusNoContent, (<-done).status)
	assert.Equal(t, http.StatusNoContent, r.push(t, good).status)
}

// TestInFlightBytes sends large pushes at once, more than there is memory for: some are
// refused, none is lost, and all memory comes back.
func TestInFlightBytes(t *testing.T) {
	t.Parallel()
	hold := make(chan struct{})
	j := &fakeJournal{hold: hold}
	r := start(t, func(o *Options) {
		o.Journal = j
		o.Limits.InFlightBytes, o.Limits.Entries, o.Limits.Concurrent = 4<<20, 1e6, 24
	})
	body := []byte(`{"streams":[{"values":[["1","x"]` + strings.Repeat(`,["1","`+strings.Repeat("y", 900)+`"]`, 1000) + `]}]}`)
	answers := make(chan answer, 24)
	for range 24 {
		go func() { answers <- r.send(t, "POST", "/loki/api/v1/push", asJSON, body) }()
	}
	var first answer
	select { // the taken ones wait for the journal
	case first = <-answers:
	case <-time.After(waiting.Stall):
		close(hold)
		t.Fatal("nothing was refused")
	}
	assert.Equal(t, http.StatusTooManyRequests, first.status)
	assert.Equal(t, "1", first.header.Get("Retry-After"))
	assert.LessOrEqual(t, r.handler.memory.used.Load(), int64(4<<20))
	close(hold)
	counts := map[int]int{first.status: 1}
	for range 23 {
		counts[(<-answers).status]++
	}
	assert.Equal(t, 24, counts[204]+counts[429], "%v", counts)
	assert.Positive(t, counts[204])
	assert.Equal(t, counts[204]*1001, j.taken())
	assert.Zero(t, r.handler.memory.used.Load())
}

// TestClientGone ends a body early.
func TestClientGone(t *testing.T) {
	t.Parallel()
	r := start(t)
	c, _ := dial(t, r, 1000)
	_, err := c.Write([]byte(good))
	require.NoError(t, err)
	require.NoError(t, c.Close())
	waiting.Until(t, func() bool { return counted(r.arrived())[received.Aborted] == 1 })
	assert.Zero(t, r.journal.taken())
}

// TestConcurrentPushesStayApart pushes distinct events from many clients, and reuses
// memory between them.
func TestConcurrentPushesStayApart(t *testing.T) {
	t.Parallel()
	j, source := realJournal(t)
	r := start(t, func(o *Options) { o.Journal = j })
	var wg sync.WaitGroup
	for c := range 8 {
		wg.Go(func() {
			for i := range 10 {
				body := fmt.Appendf(nil, `{"streams":[{"stream":{"c":"%d"},"values":[["1","{\"event_id\":\"%d-%d-%s\"}"]]}]}`, c, c, i, strings.Repeat("z", 200-i))
				h := asJSON
				if i%2 == 0 {
					h, body = asJSON.with("Content-Encoding", "gzip"), gzipOf(t, body)
				}
				if got := r.send(t, "POST", "/loki/api/v1/push", h, body); got.status != 204 {
					t.Errorf("status %d: %s", got.status, got.body)
				}
			}
		})
	}
	wg.Wait()
	seen := map[string]bool{}
	for _, e := range next(t, source, 80) {
		seen[e.ID] = true
		assert.Equal(t, fmt.Sprintf(`{"event_id":"%s"}`, e.ID), string(e.Body))
		assert.True(t, strings.HasPrefix(e.ID, e.Labels[0].Value+"-"))
	}
	assert.Len(t, seen, 80)
}

// TestChunked sends a body of unknown length, below and above the limit.
func TestChunked(t *testing.T) {
	t.Parallel()
	r := start(t)
	for size, want := range map[int]int{100: 204, 100_000: 204, 1<<20 - 200: 204, 1<<20 + 100: 413} {
		line := strings.Repeat("x", 50_000)
		body := `{"streams":[{"values":[["1","x"]]}],"pad":["` + strings.Repeat(line+`","`, size/50_000) + strings.Repeat("y", size%50_000) + `"]}`
		req, err := http.NewRequestWithContext(t.Context(), "POST", r.URL+"/loki/api/v1/push", io.MultiReader(bytes.NewReader([]byte(body))))
		require.NoError(t, err)
		req.Header.Set("Content-Type", "application/json")
		req.SetBasicAuth("user", "correct horse")
		resp, err := r.Client().Do(req)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		assert.Equal(t, want, resp.StatusCode, size)
	}
}
