package traces

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/auditrelay/auditrelay/config/secret"
)

// export sends one span to a collector, and returns what was logged.
func export(t *testing.T, collector http.Handler) string {
	server := httptest.NewServer(collector)
	defer server.Close()
	var logged strings.Builder
	tracer, err := New(t.Context(), Options{
		Endpoint: server.URL + "/v1/traces", Ratio: 1, Logger: slog.New(slog.NewTextHandler(&logged, nil)),
		Headers: map[string]secret.Text{"Authorization": secret.New("Bearer token-7731"), "X-Api-Key": secret.New("key-4242")},
	})
	require.NoError(t, err)
	tracer.Push(time.Now(), "loki_push").End("acme", "live", 204)
	require.NoError(t, tracer.provider.ForceFlush(t.Context()))
	require.NoError(t, tracer.Close(t.Context()))
	return logged.String()
}

func TestHeadersFollowNoRedirect(t *testing.T) {
	t.Parallel()
	for _, status := range []int{http.StatusFound, http.StatusTemporaryRedirect} {
		var reached atomic.Int64
		elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached.Add(1) }))
		t.Cleanup(elsewhere.Close)
		logged := export(t, http.RedirectHandler(elsewhere.URL, status))
		assert.Zero(t, reached.Load(), "%d", status)
		assert.Contains(t, logged, "traces cannot be sent")
	}
}

func TestAnEchoingCollectorPutsNoSecretIntoTheLog(t *testing.T) {
	t.Parallel()
	logged := export(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusUnauthorized)
		_, _ = io.WriteString(w, "\x1b[31mno "+r.Header.Get("Authorization")+" "+r.Header.Get("X-Api-Key")+strings.Repeat("\nno", 1<<20))
	}))
	assert.Contains(t, logged, "401")
	assert.NotContains(t, logged, "7731")
	assert.NotContains(t, logged, "4242")
	assert.Less(t, len(logged), 1000)
}

// silent sends to a collector that does not answer before ended.
type silent struct {
	sdktrace.SpanExporter
	ended chan struct{}
}

func (s silent) ExportSpans(context.Context, []sdktrace.ReadOnlySpan) error {
	<-s.ended
	return nil
}

func TestASilentCollectorHoldsUpNoStop(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ended := make(chan struct{})
		defer close(ended)
		provider := sdktrace.NewTracerProvider(sdktrace.WithBatcher(silent{tracetest.NewNoopExporter(), ended}))
		tracer := &Tracer{ratio: 1, provider: provider, tracer: provider.Tracer("test")}
		tracer.Push(time.Now(), "loki_push").End("acme", "live", 204)
		begun := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		require.ErrorIs(t, tracer.Close(ctx), context.DeadlineExceeded)
		assert.Equal(t, closeTimeout, time.Since(begun))
	})
}
