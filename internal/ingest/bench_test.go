package ingest

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/auditrelay/auditrelay/internal/ingest/connlimit"
	"github.com/auditrelay/auditrelay/internal/testbed/pushes"
	"github.com/auditrelay/auditrelay/relay"
)

// benchLine is an event of 617 bytes, much like those of the comparison rig.
func benchLine(i int, id string) []byte {
	return fmt.Appendf(nil, `{"%s":"evt-abcdef-%010d","ts":"2025-06-01T00:00:00.000Z","action":"t.login","realm":"prod-eu-3","type":"LOGIN","actor":{"user_id":"u-012345","username":"user012345@example.test","session":"0123456789abcdef0123456789abcdef"},"src":{"ip":"10.1.2.3","port":43210,"ua":"Mozilla/5.0 (Macintosh; Intel Mac OS X 14_5) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/17.5 Safari/605.1.15","geo":"DE"},"auth":{"method":"password+totp","client_id":"mobile-android","result":"ok","reason":""},"req":{"id":"0123456789abcdef","path":"/realms/prod-eu-3/protocol/openid-connect/token","status":200,"ms":123},"host":"idp-3.internal"}`, id, i)
}

func benchBodies(tb testing.TB, n int) map[string][]byte {
	streams := make([]pushes.Stream, 2)
	noID := make([]pushes.Stream, 2)
	var logs []pushes.Log
	for i := range n {
		s := i % 2
		streams[s].Labels = []relay.Label{label("app", "idp"), label("env", "prod"), label("job", "auth-events"), label("host", "idp-1")}
		streams[s].Entries = append(streams[s].Entries, pushes.Entry{Time: 1750000000000000000, Line: benchLine(i, "event_id")})
		noID[s].Entries = append(noID[s].Entries, pushes.Entry{Time: 1750000000000000000, Line: benchLine(i, "event_no")})
		logs = append(logs, pushes.Log{Time: 1750000000000000000, Source: "idp", Tags: "env:prod,job:auth-events", Hostname: "idp-1", Service: "idp", Status: "info", Message: benchLine(i, "event_id")})
	}
	asJSON, err := pushes.Loki(nil, streams)
	require.NoError(tb, err)
	hashed, err := pushes.Loki(nil, noID)
	require.NoError(tb, err)
	asLogs, err := pushes.Datadog(nil, logs)
	require.NoError(tb, err)
	return map[string][]byte{"json": asJSON, "hashed": hashed, "proto": protoOf(streams...), "datadog": asLogs}
}

// nullWriter is a response writer of nearly no cost.
type nullWriter struct {
	header http.Header
	status int
}

func (w *nullWriter) Header() http.Header         { return w.header }
func (w *nullWriter) Write(b []byte) (int, error) { return len(b), nil }
func (w *nullWriter) WriteHeader(status int)      { w.status = status }

type nullBody struct{ bytes.Reader }

func (*nullBody) Close() error { return nil }

// newToIt makes each push's events new, though their bodies are the same.
type newToIt struct {
	*RecentSet
	pushes uint32
}

func (n *newToIt) Key(source string, id, body []byte) EventKey {
	k := n.RecentSet.Key(source, id, body)
	k[0] += n.pushes * 0x9e3779b9
	return k
}

func (n *newToIt) Add(keys []EventKey, epoch uint64) {
	n.RecentSet.Add(keys, epoch)
	n.pushes++
}

// fullSet holds as many events as it can.
func fullSet() *RecentSet {
	s := NewRecentSet(time.Hour, DefaultRecentEvents)
	var keys []EventKey
	for i := range uint64(2 * DefaultRecentEvents) {
		keys = append(keys, EventKey{uint32(i) * 0x9e3779b9, uint32(i * 0xd1342543de82ef95 >> 32), uint32(i)})
	}
	s.Add(keys, s.Epoch())
	return s
}

// BenchmarkPush runs the handler alone, without net/http, on a journal without work.
// "+recent" has a full set of recent events and only new ones in the push; with "+again"
// the set knows all of the push.
func BenchmarkPush(b *testing.B) {
	for _, c := range []struct {
		name string
		n    int
	}{{"json", 1}, {"json", 100}, {"json", 1000}, {"hashed", 100}, {"proto", 1}, {"proto", 100}, {"datadog", 1}, {"datadog", 100}, {"json+recent", 1}, {"json+recent", 100}, {"json+again", 100}, {"proto+recent", 100}} {
		b.Run(fmt.Sprintf("%s/%d", c.name, c.n), func(b *testing.B) {
			form, known, _ := strings.Cut(c.name, "+")
			body := benchBodies(b, c.n)[form]
			o := Options{
				Credentials: fakeCredentials{}, Journal: &fakeJournal{}, Limits: testLimits(), Anonymous: testEnv,
				Logger: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry(),
			}
			switch known {
			case "recent":
				o.Recent = &newToIt{RecentSet: fullSet()}
			case "again":
				o.Recent = fullSet()
			}
			h := New(o)
			reader := &nullBody{}
			req := &http.Request{Method: http.MethodPost, URL: &url.URL{Path: "/loki/api/v1/push"}, Header: http.Header{"Content-Type": {"application/json"}}, Body: reader, ContentLength: int64(len(body))}
			switch form {
			case "proto":
				req.Header.Set("Content-Type", "application/x-protobuf")
			case "datadog":
				req.URL.Path = "/api/v2/logs"
			}
			w := &nullWriter{header: http.Header{}}
			b.ReportAllocs()
			for b.Loop() {
				reader.Reset(body)
				h.ServeHTTP(w, req)
			}
			require.Less(b, w.status, 300)
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*c.n), "ns/event")
		})
	}
}

// TestNoAllocationPerEvent bounds the allocations of a push by a constant, for any number
// of events.
func TestNoAllocationPerEvent(t *testing.T) {
	known := fullSet()
	for name, path := range map[string]string{"json": "/loki/api/v1/push", "hashed": "/loki/api/v1/push", "proto": "/loki/api/v1/push", "datadog": "/api/v2/logs"} {
		body := benchBodies(t, 500)[name]
		h := New(Options{
			Credentials: fakeCredentials{}, Journal: &fakeJournal{}, Limits: testLimits(), Anonymous: testEnv,
			Logger: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry(), Recent: &newToIt{RecentSet: known},
		})
		contentType := "application/json"
		if name == "proto" {
			contentType = "application/x-protobuf"
		}
		reader := bytes.NewReader(nil)
		req := &http.Request{Method: http.MethodPost, URL: &url.URL{Path: path}, Header: http.Header{"Content-Type": {contentType}}, Body: io.NopCloser(reader), ContentLength: int64(len(body))}
		w := &nullWriter{header: http.Header{}}
		require.Less(t, testing.AllocsPerRun(20, func() {
			reader.Reset(body)
			h.ServeHTTP(w, req)
		}), 40.0, name)
		require.Less(t, w.status, 300, name)
	}
}

// BenchmarkConnections pushes one event at a time over 64 connections, as a provider without
// batches does, to the handler behind its listener. The processor time is that of both ends.
func BenchmarkConnections(b *testing.B) {
	limits := testLimits()
	limits.Concurrent = 64
	h := New(Options{
		Credentials: fakeCredentials{}, Journal: &fakeJournal{}, Limits: limits,
		Logger: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry(),
	})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(b, err)
	door := connlimit.New(l, connlimit.Options{Name: "ingest", Total: 1000, Metrics: connlimit.NewMetrics(prometheus.NewRegistry()), Logger: slog.New(slog.DiscardHandler)})
	server := h.Server()
	door.Guard(server)
	go func() { _ = server.Serve(door) }() // until Close
	b.Cleanup(func() { _ = server.Close() })
	body := benchBodies(b, 1)["json"]
	request := fmt.Appendf(nil, "POST /loki/api/v1/push HTTP/1.1\r\nHost: relay\r\nContent-Type: application/json\r\nDD-API-KEY: 0123456789abcdef\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	b.SetParallelism(32)
	b.ReportAllocs()
	b.ResetTimer()
	before := cpuTime(b)
	b.RunParallel(func(pb *testing.PB) {
		c, err := net.Dial("tcp", l.Addr().String())
		require.NoError(b, err)
		defer func() { _ = c.Close() }()
		answer := make([]byte, 4096)
		for pb.Next() {
			_, err := c.Write(request)
			require.NoError(b, err)
			n, err := c.Read(answer)
			require.NoError(b, err)
			require.True(b, bytes.HasPrefix(answer[:n], []byte("HTTP/1.1 204")), "%s", answer[:n])
		}
	})
	b.StopTimer()
	b.ReportMetric(float64((cpuTime(b)-before).Nanoseconds())/float64(b.N), "cpu-ns/push")
}

// cpuTime is what this process has used so far.
func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var use unix.Rusage
	require.NoError(b, unix.Getrusage(unix.RUSAGE_SELF, &use))
	return time.Duration(use.Utime.Nano() + use.Stime.Nano())
}
