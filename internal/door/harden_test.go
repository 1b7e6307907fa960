package door

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/testbed/waiting"
)

func TestPanics(t *testing.T) {
	t.Parallel()
	var log waiting.Output
	mux := http.NewServeMux()
	mux.HandleFunc("/panic", func(http.ResponseWriter, *http.Request) { panic("a fault of ours") })
	mux.HandleFunc("/half", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "half an answer")
		panic("a fault of ours")
	})
	mux.HandleFunc("/abort", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	mux.HandleFunc("/flush", func(w http.ResponseWriter, _ *http.Request) {
		assert.NoError(t, http.NewResponseController(w).Flush())
	})
	server := httptest.NewUnstartedServer(mux)
	Harden(server.Config, "ingest", slog.New(slog.NewTextHandler(&log, nil)))
	server.Start()
	t.Cleanup(server.Close)
	get := func(path string) (status int, whole error) {
		resp, err := server.Client().Get(server.URL + path + "?key=hunter2")
		if err != nil {
			return 0, err
		}
		defer func() { _ = resp.Body.Close() }()
		_, whole = io.ReadAll(resp.Body)
		return resp.StatusCode, whole
	}
	status, err := get("/panic")
	require.NoError(t, err)
	assert.Equal(t, http.StatusInternalServerError, status)
	text := log.String()
	assert.Equal(t, 1, strings.Count(text, "level=ERROR"), text)
	for _, want := range []string{"a fault of ours", "harden_test.go", "listener=ingest", "stack="} {
		assert.Contains(t, text, want)
	}
	_, err = get("/half")
	require.Error(t, err, "half an answer passes for none")
	_, err = get("/abort")
	require.Error(t, err)
	status, err = get("/flush")
	require.NoError(t, err)
	assert.Equal(t, http.StatusOK, status, "the server goes on")
	assert.Equal(t, 2, strings.Count(log.String(), "level=ERROR"), "each panic once: %s", log.String())
	assert.NotContains(t, log.String(), "hunter2")
}

func TestComplaintsHaveLevels(t *testing.T) {
	t.Parallel()
	var log waiting.Output
	server := &http.Server{Handler: http.NotFoundHandler()}
	Harden(server, "admin", slog.New(slog.NewTextHandler(&log, nil)))
	server.ErrorLog.Print("http: TLS handshake error from 192.0.2.1:4: EOF")
	assert.Empty(t, log.String(), "strangers do not fill the log")
	server.ErrorLog.Print("http: Accept error: too many open files; retrying in 5ms")
	assert.Contains(t, log.String(), "level=WARN")
	server.ErrorLog.Print("http: panic serving 192.0.2.1:4: x")
	assert.Contains(t, log.String(), "level=ERROR")
	Trust(context.Background()) // of no door: nothing happens
}
