package ingest

import (
	"bytes"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/testbed/pushes"
	"github.com/auditrelay/auditrelay/relay"
)

// FuzzPush sends any body in any form. The answer is always from the fixed set, and a 2xx
// only with all its events in the journal. All memory comes back.
func FuzzPush(f *testing.F) {
	streams := pushes.Stream{Labels: []relay.Label{{Name: "a", Value: "b"}}, Entries: []pushes.Entry{{Time: 1, Line: []byte(`{"event_id":"e"}`)}}}
	f.Add(uint8(0), []byte(good))
	f.Add(uint8(1), gzipOf(f, []byte(good)))
	f.Add(uint8(2), zlibOf(f, []byte(good)))
	f.Add(uint8(3), zstdOf(f, []byte(good)))
	f.Add(uint8(4), protoOf(streams))
	f.Add(uint8(5), gzipOf(f, protoOf(streams)))
	f.Add(uint8(8), []byte(`[{"message":"{\"event_id\":\"e\"}","ddtags":"a:b"},7]`))
	f.Add(uint8(9), gzipOf(f, []byte("{\"a\":1}\n{}")))
	j := &fakeJournal{}
	limits := testLimits()
	limits.BodyBytes, limits.DecompressedBytes, limits.Entries, limits.LineBytes = 1<<16, 1<<18, 100, 1<<10
	h := New(Options{
		Credentials: fakeCredentials{}, Journal: j, Limits: limits, Anonymous: testEnv,
		Logger: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry(),
	})
	f.Fuzz(func(t *testing.T, shape uint8, body []byte) {
		path := "/loki/api/v1/push"
		if shape&8 != 0 {
			path = "/api/v2/logs"
		}
		req := httptest.NewRequest(http.MethodPost, path, bytes.NewReader(body))
		req.Header.Set("Content-Type", "application/json")
		if shape&12 == 4 {
			req.Header.Set("Content-Type", "application/x-protobuf")
		}
		req.Header.Set("Content-Encoding", [...]string{"", "gzip", "deflate", "zstd"}[shape&3])
		w := httptest.NewRecorder()
		h.ServeHTTP(w, req)
		require.Contains(t, []int{202, 204, 400, 413, 422}, w.Code)
		require.Zero(t, h.memory.used.Load())
		require.Empty(t, h.slots)
		require.LessOrEqual(t, w.Body.Len(), 2000)
	})
}
