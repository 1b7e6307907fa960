package admin

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/config/secret"
	"github.com/auditrelay/auditrelay/internal/testbed/waiting"
)

// run makes the calls, with a log of its own, until stop.
func run(t *testing.T, o HeartbeatOptions) (log *waiting.Output, stop func()) {
	t.Helper()
	var err error
	o.Transport, err = HeartbeatTransport(nil)
	require.NoError(t, err)
	log = &waiting.Output{}
	o.Logger = slog.New(slog.NewTextHandler(log, nil))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); Heartbeat(ctx, o) }()
	return log, func() { cancel(); <-ended }
}

func TestTheSwitchIsCalledWhileTheRelayIsWell(t *testing.T) {
	t.Parallel()
	var calls, status, asked atomic.Int64
	var alive atomic.Bool
	status.Store(http.StatusOK)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		assert.Equal(t, http.MethodPost, r.Method)
		assert.Equal(t, "/ping/the-secret", r.URL.Path)
		calls.Add(1)
		w.WriteHeader(int(status.Load()))
	}))
	defer server.Close()
	log, stop := run(t, HeartbeatOptions{
		URL: secret.New(server.URL + "/ping/the-secret"), Every: time.Millisecond,
		Alive: func(context.Context) bool { asked.Add(1); return alive.Load() },
	})
	waiting.Until(t, func() bool { return asked.Load() > 3 })
	assert.Zero(t, calls.Load(), "a relay that is not well calls nobody")
	alive.Store(true)
	waiting.Until(t, func() bool { return calls.Load() > 3 })
	status.Store(http.StatusNotFound)
	waiting.Until(t, func() bool { return strings.Contains(log.String(), "it answered 404") })
	status.Store(http.StatusNoContent)
	waiting.Until(t, func() bool { return strings.Contains(log.String(), "arrives again") })
	server.CloseClientConnections()
	server.Close()
	waiting.Until(t, func() bool { return strings.Count(log.String(), "does not arrive") == 2 }, "neither refused nor reset")
	stop()
	assert.NotContains(t, log.String(), "the-secret")
	assert.Less(t, strings.Count(log.String(), "does not arrive"), 4, "a lasting failure is no flood")
	require.NotContains(t, log.String(), "heartbeat.url is not an address")
}

func TestAnAnswerThatIsNoneFloodsNoLog(t *testing.T) {
	t.Parallel()
	for answer, expected := range map[string]string{
		strings.Repeat("A", 1<<20):                                "exceeded 65536 bytes",
		strings.Repeat("A", 1<<15) + "\r\n\r\n":                   "malformed HTTP response",
		"HTTP/1.1 500 " + strings.Repeat("A", 1<<15) + "\r\n\r\n": "500 Internal Server Error",
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			conn, _, err := http.NewResponseController(w).Hijack()
			if assert.NoError(t, err) {
				_, _ = conn.Write([]byte(answer))
				_ = conn.Close()
			}
		}))
		t.Cleanup(server.Close)
		log, stop := run(t, HeartbeatOptions{
			URL: secret.New(server.URL), Every: time.Hour,
			Alive: func(context.Context) bool { return true },
		})
		waiting.Until(t, func() bool { return log.String() != "" })
		stop()
		assert.Contains(t, log.String(), expected)
		assert.Less(t, len(log.String()), 2*maxHeartbeatReason)
	}
}
