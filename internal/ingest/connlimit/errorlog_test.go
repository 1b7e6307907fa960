package connlimit

import (
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/testbed/waiting"
)

// A provider that refuses the certificate sends no request: only the handshake tells.
func TestFailedHandshakesAreTold(t *testing.T) {
	t.Parallel()
	var log waiting.Output
	metrics := NewMetrics(prometheus.NewRegistry())
	server := httptest.NewUnstartedServer(http.NotFoundHandler())
	door := New(server.Listener, Options{Name: "ingest", Total: 10, Metrics: metrics, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	server.Listener = door
	door.Guard(server.Config)
	server.StartTLS()
	t.Cleanup(server.Close)
	address := server.Listener.Addr().String()
	fails := func(reason string, want int, attempt func()) {
		t.Helper()
		failed := metrics.handshakes.WithLabelValues("ingest", reason)
		for n := range want {
			attempt()
			waiting.Until(t, func() bool { return testutil.ToFloat64(failed) == float64(n+1) }, "no failure of %s is counted", reason)
		}
	}
	fails("other", 2, func() {
		conn, err := net.Dial("tcp", address)
		require.NoError(t, err)
		_, _ = io.WriteString(conn, "no handshake")
		_ = conn.Close()
	})
	assert.Empty(t, log.String(), "scanners do not fill the log")
	fails("certificate", 3, func() {
		_, err := tls.Dial("tcp", address, &tls.Config{MinVersion: tls.VersionTLS12, ServerName: "example.com"}) // its authority is not trusted
		require.ErrorContains(t, err, "certificate")
	})
	fails("plain_http", 2, func() {
		resp, err := http.Get("http://" + address)
		require.NoError(t, err)
		_ = resp.Body.Close()
	})
	waiting.Until(t, func() bool { return strings.Count(log.String(), "level=WARN") >= 2 }, "not both are told")
	text := log.String()
	assert.Equal(t, 2, strings.Count(text, "level=WARN"), "each once an hour: %s", text)
	for _, want := range []string{"TLS handshakes fail over a certificate", "tls: bad certificate", "listener=ingest", "clients speak HTTP to this HTTPS listener"} {
		assert.Contains(t, text, want)
	}
}

// The texts are those of net/http for the clients named.
func TestReasonsOfHandshakes(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"192.0.2.1:4: remote error: tls: unknown certificate authority": handshakeCertificate, // OpenSSL, TLS 1.2
		"192.0.2.1:4: local error: tls: bad record MAC":                 handshakeCertificate, // OpenSSL 3, TLS 1.3
		"192.0.2.1:4: tls: client didn't provide a certificate":         handshakeCertificate,
		"192.0.2.1:4: client sent an HTTP request to an HTTPS server":   handshakePlain,
		"192.0.2.1:4: EOF": handshakeOther,
		"192.0.2.1:4: tls: client offered only unsupported versions: [302 301]": handshakeOther,
	} {
		assert.Equal(t, want, handshakeReason(text), text)
	}
}

// A panic costs its request alone: the client gets no answer that could pass for a whole one.
func TestAPanicIsLoggedAndEndsItsRequest(t *testing.T) {
	t.Parallel()
	var log waiting.Output
	mux := http.NewServeMux()
	mux.HandleFunc("/panic", func(http.ResponseWriter, *http.Request) { panic("a fault of ours") })
	mux.HandleFunc("/half", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "half an answer")
		panic("a fault of ours")
	})
	mux.HandleFunc("/good", func(http.ResponseWriter, *http.Request) {})
	server := httptest.NewUnstartedServer(mux)
	server.Config.ErrorLog = ErrorLog("ingest", slog.New(slog.NewTextHandler(&log, nil)), nil)
	server.Start()
	t.Cleanup(server.Close)
	get := func(path string) error {
		resp, err := server.Client().Get(server.URL + path + "?key=hunter2")
		if err != nil {
			return err
		}
		defer func() { _ = resp.Body.Close() }()
		_, err = io.ReadAll(resp.Body)
		return err
	}
	require.Error(t, get("/panic"))
	require.Error(t, get("/half"))
	require.NoError(t, get("/good"), "the server goes on")
	waiting.Until(t, func() bool { return strings.Count(log.String(), "level=ERROR") == 2 }, "not both panics are logged")
	for _, want := range []string{"a fault of ours", "errorlog_test.go", "listener=ingest"} {
		assert.Contains(t, log.String(), want)
	}
	assert.NotContains(t, log.String(), "hunter2")
}

func TestComplaintsHaveLevels(t *testing.T) {
	t.Parallel()
	var log waiting.Output
	complain := ErrorLog("admin", slog.New(slog.NewTextHandler(&log, nil)), nil)
	complain.Print("http: TLS handshake error from 192.0.2.1:4: EOF")
	assert.Empty(t, log.String(), "strangers do not fill the log")
	complain.Print("http: Accept error: too many open files; retrying in 5ms")
	assert.Contains(t, log.String(), "level=WARN")
	complain.Print("http: panic serving 192.0.2.1:4: x")
	assert.Contains(t, log.String(), "level=ERROR")
	Trust(t.Context()) // the context has no door, so nothing happens
}
