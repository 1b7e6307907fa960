package ingest

import (
	"bytes"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/ingest/credentials"
	"github.com/auditrelay/auditrelay/internal/ingest/received"
	"github.com/auditrelay/auditrelay/internal/journal/record"
	"github.com/auditrelay/auditrelay/internal/testbed/pushes"
	"github.com/auditrelay/auditrelay/relay"
)

var (
	testEnv = credentials.Environment{Project: "acme", Environment: "live"}
	goneEnv = credentials.Environment{Project: "acme", Environment: "gone"} // is not configured any more
)

// fakeCredentials knows one credential of each kind.
type fakeCredentials struct{}

func (fakeCredentials) Basic(username, password string) (credentials.Environment, bool) {
	return testEnv, username == "user" && password == "correct horse"
}

func (fakeCredentials) APIKey(key string) (credentials.Environment, bool) {
	return testEnv, key == "0123456789abcdef"
}

func (fakeCredentials) Owner(username string) (credentials.Environment, bool) {
	if username == "user" {
		return testEnv, true
	}
	return credentials.Environment{}, false
}

func (fakeCredentials) Former(username, password string) (credentials.Environment, bool) {
	return goneEnv, username == "former" && password == "correct horse"
}

// fakeJournal counts, or fails, or waits.
type fakeJournal struct {
	mu     sync.Mutex
	events int
	err    error
	hold   chan struct{} // Append waits until it is closed
	came   atomic.Int32  // calls of Append
}

func (j *fakeJournal) Append(ctx context.Context, b *record.Batch) error {
	j.came.Add(1)
	if j.hold != nil {
		select {
		case <-j.hold:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.err == nil {
		j.events += b.Len()
	}
	return j.err
}

func (j *fakeJournal) taken() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.events
}

func testLimits() config.IngestLimits {
	return config.IngestLimits{
		BodyBytes: 1 << 20, DecompressedBytes: 4 << 20, Entries: 1000, LineBytes: 64 << 10, Labels: 64, LabelBytes: 16 << 10,
		Concurrent: 8, InFlightBytes: 64 << 20, ReadTimeout: 10 * time.Second,
	}
}

// rig is a handler that a real server serves.
type rig struct {
	*httptest.Server
	handler *Handler
	journal *fakeJournal
	metrics *prometheus.Registry
	log     *bytes.Buffer
}

func start(t testing.TB, change ...func(*Options)) *rig {
	t.Helper()
	r := &rig{journal: &fakeJournal{}, metrics: prometheus.NewRegistry(), log: &bytes.Buffer{}}
	o := Options{
		Credentials: fakeCredentials{}, Journal: r.journal, Limits: testLimits(), IDKey: testKey,
		Logger: slog.New(slog.NewTextHandler(&lockedWriter{w: r.log}, nil)), Registerer: r.metrics,
	}
	for _, f := range change {
		f(&o)
	}
	h := New(o)
	r.handler = h
	r.Server = httptest.NewUnstartedServer(h)
	r.Config = h.Server()
	r.Start()
	t.Cleanup(r.Close)
	return r
}

// arrived is the state of the test environment in the book of arrivals.
func (r *rig) arrived() received.Snapshot { return r.handler.arrivals.Of(testEnv).Snapshot() }

type lockedWriter struct {
	mu sync.Mutex
	w  io.Writer
}

func (l *lockedWriter) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(b)
}

// answer is the answer to a push.
type answer struct {
	status int
	header http.Header
	body   string
}

type header map[string]string

var asJSON = header{"Content-Type": "application/json"}

// with adds fields to a header.
func (h header) with(pairs ...string) header {
	out := header{}
	for k, v := range h {
		out[k] = v
	}
	for i := 0; i < len(pairs); i += 2 {
		out[pairs[i]] = pairs[i+1]
	}
	return out
}

func (r *rig) send(t testing.TB, method, path string, h header, body []byte) answer {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, r.URL+path, bytes.NewReader(body))
	require.NoError(t, err)
	req.SetBasicAuth("user", "correct horse")
	for k, v := range h {
		if v == "" {
			req.Header.Del(k)
		} else {
			req.Header.Set(k, v)
		}
	}
	resp, err := r.Client().Do(req)
	require.NoError(t, err)
	defer func() { require.NoError(t, resp.Body.Close()) }()
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return answer{resp.StatusCode, resp.Header, string(text)}
}

func (r *rig) push(t testing.TB, body string) answer {
	t.Helper()
	return r.send(t, http.MethodPost, "/loki/api/v1/push", asJSON, []byte(body))
}

func gzipOf(t testing.TB, b []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	_, err := w.Write(b)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return out.Bytes()
}

func zlibOf(t testing.TB, b []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	w := zlib.NewWriter(&out)
	_, err := w.Write(b)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return out.Bytes()
}

func flateOf(t testing.TB, b []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	w, err := flate.NewWriter(&out, 5)
	require.NoError(t, err)
	_, err = w.Write(b)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return out.Bytes()
}

func zstdOf(t testing.TB, b []byte, o ...zstd.EOption) []byte {
	t.Helper()
	var out bytes.Buffer
	w, err := zstd.NewWriter(&out, o...)
	require.NoError(t, err)
	_, err = w.Write(b)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return out.Bytes()
}

func protoOf(streams ...pushes.Stream) []byte {
	return snappy.Encode(nil, pushes.LokiProto(nil, streams))
}

func label(name, value string) relay.Label { return relay.Label{Name: name, Value: value} }
