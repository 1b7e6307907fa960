package app

import (
	"crypto/tls"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/control/console"
	"github.com/auditrelay/auditrelay/internal/trail/audit"
	"github.com/auditrelay/auditrelay/internal/trail/timeline"
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

// With a certificate, a person is let in and acts by its name; a session is listed, revoked by the
// command line, and stays so.
func TestPeopleInTheBrowser(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	certFile, keyFile := issue(t, dir, "console", time.Now().Add(30*24*time.Hour))
	cfg := testConfig(filepath.Join(dir, "data"))
	cfg.Console = config.Console{
		Listen: "127.0.0.1:0", TLS: &config.TLSServer{CertFile: certFile, KeyFile: keyFile}, SessionLength: time.Hour, IdleLength: time.Hour,
		Certificates: &config.ConsoleCertificates{CAFile: certFile, Roles: []config.CertificateRole{{Role: "viewer", Subject: "CN=console"}}},
	}
	r := start(t, cfg)
	client := console.NewClient(cfg.DataDir)
	opened, err := client.OpenWeb(t.Context())
	require.NoError(t, err)
	require.True(t, strings.HasPrefix(opened.URL, "https://127.0.0.1:"), opened.URL)
	front, _, _ := strings.Cut(opened.URL, "/open/")

	pair, err := tls.LoadX509KeyPair(certFile, keyFile)
	require.NoError(t, err)
	code, body, _ := visit(t, front+"/", nil, pair)
	assert.Equal(t, http.StatusOK, code, body)
	assert.Contains(t, body, "console@console (by certificate)")
	assert.Contains(t, body, "viewer")
	code, body, _ = visit(t, front+"/", nil)
	assert.Equal(t, http.StatusUnauthorized, code, body)

	_, _, cookies := visit(t, opened.URL, nil)
	require.Len(t, cookies, 1)
	code, body, _ = visit(t, front+"/", cookies[0])
	assert.Equal(t, http.StatusOK, code, body)
	list, err := client.Sessions(t.Context())
	require.NoError(t, err)
	require.Len(t, list, 1)
	assert.Equal(t, audit.ByLink, list[0].Person.By)
	_, err = client.RevokeSession(t.Context(), console.RevokeSession{ID: "another"})
	require.ErrorContains(t, err, "sessions list")
	_, err = client.RevokeSession(t.Context(), console.RevokeSession{ID: list[0].ID})
	require.NoError(t, err)
	code, _, _ = visit(t, front+"/", cookies[0])
	assert.Equal(t, http.StatusUnauthorized, code)
	var told []timeline.Row
	require.NoError(t, client.List(t.Context(), console.ListTrail{Filter: timeline.Filter{Type: "console.session_revoked"}}, func(row timeline.Row) error {
		told = append(told, row)
		return nil
	}))
	require.Len(t, told, 1)
	require.NoError(t, r.stop())
}

// visit asks for a page, with a session's cookie or a certificate.
func visit(t *testing.T, at string, session *http.Cookie, certs ...tls.Certificate) (code int, body string, cookies []*http.Cookie) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, at, http.NoBody)
	require.NoError(t, err)
	if session != nil {
		req.AddCookie(session)
	}
	transport := &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true, Certificates: certs}} //nolint:gosec // of the test
	resp, err := transport.RoundTrip(req)
	require.NoError(t, err)
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp.StatusCode, string(text), resp.Cookies()
}
