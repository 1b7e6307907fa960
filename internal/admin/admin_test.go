package admin

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func get(t *testing.T, h http.Handler, path string) (int, string) {
	t.Helper()
	srv := httptest.NewServer(h)
	defer srv.Close()
	resp, err := srv.Client().Get(srv.URL + path)
	require.NoError(t, err)
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp.StatusCode, string(body)
}

func TestReadiness(t *testing.T) {
	t.Parallel()
	h := New(prometheus.NewRegistry())
	code, body := get(t, h, "/readyz")
	assert.Equal(t, 503, code, "before the start")
	assert.Contains(t, body, "starting")

	h.SetStarted(true)
	h.AddCheck(Check{"journal", func(context.Context) (string, error) { return "3% of the budget", nil }})
	code, body = get(t, h, "/readyz")
	assert.Equal(t, 200, code)
	assert.Equal(t, "journal: 3% of the budget\n", body)

	h.AddCheck(Check{"ingest", func(context.Context) (string, error) { return "", errors.New("closed") }})
	code, body = get(t, h, "/readyz")
	assert.Equal(t, 503, code)
	assert.Contains(t, body, "ingest: not ready: closed")

	code, _ = get(t, h, "/healthz")
	assert.Equal(t, 200, code, "alive all the same")
}

func TestStatusAndMetrics(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	c := prometheus.NewCounter(prometheus.CounterOpts{Name: "auditrelay_x_total", Help: "x"})
	reg.MustRegister(c)
	h := New(reg)
	h.AddStatus("good", func(context.Context) (any, error) { return []int{1}, nil })
	h.AddStatus("bad", func(context.Context) (any, error) { return nil, errors.New("no") })
	code, body := get(t, h, "/status")
	assert.Equal(t, 200, code)
	assert.JSONEq(t, `{"good":[1],"bad":{"error":"no"}}`, body)
	_, body = get(t, h, "/metrics")
	assert.Contains(t, body, "auditrelay_x_total 0")
	code, _ = get(t, h, "/nothing")
	assert.Equal(t, 404, code)
}
