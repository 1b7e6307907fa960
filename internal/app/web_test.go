package app

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/control/console"
)

func TestTheConsoleOpensInABrowser(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t.TempDir())
	cfg.Console.Listen = "127.0.0.1:0"
	r := start(t, cfg)
	opened, err := console.NewClient(cfg.DataDir).OpenWeb(t.Context())
	require.NoError(t, err)
	req, err := http.NewRequest(http.MethodGet, opened.URL, http.NoBody)
	require.NoError(t, err)
	resp, err := http.DefaultTransport.RoundTrip(req)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Len(t, resp.Cookies(), 1)

	req, err = http.NewRequest(http.MethodGet, "http://"+req.URL.Host+"/", http.NoBody)
	require.NoError(t, err)
	req.AddCookie(resp.Cookies()[0])
	code, body := r.do(req)
	assert.Equal(t, http.StatusOK, code, body)
	assert.Contains(t, body, "acme/live")
	assert.Contains(t, body, "<bdi>file</bdi>")
	require.NoError(t, r.stop())
}

func TestARelayWithoutAConsoleSaysSo(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t.TempDir())
	r := start(t, cfg)
	_, err := console.NewClient(cfg.DataDir).OpenWeb(t.Context())
	require.ErrorContains(t, err, "set console.listen")
	require.NoError(t, r.stop())
}
