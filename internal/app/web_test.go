package app

import (
	"crypto/tls"
	"io"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/control/console"
	"github.com/auditrelay/auditrelay/internal/testbed/waiting"
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

// The pages show what the relay says, as the person may see it, and act as the command line does.
func TestPagesOfTheStreamAndTheSinks(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	certFile, keyFile := issue(t, dir, "console", time.Now().Add(30*24*time.Hour))
	cfg := testConfig(filepath.Join(dir, "data"))
	cfg.Console = config.Console{
		Listen: "127.0.0.1:0", TLS: &config.TLSServer{CertFile: certFile, KeyFile: keyFile}, SessionLength: time.Hour, IdleLength: time.Hour,
		Certificates: &config.ConsoleCertificates{CAFile: certFile, Roles: []config.CertificateRole{{Role: "viewer", Subject: "CN=console"}}},
	}
	cfg.Policies.Rules = []config.PolicyRule{{Name: "long", Setting: "password_strength_config", CEL: "true", Reason: "<b>because</b>", Severity: "high"}}
	r := start(t, cfg)
	opened, err := console.NewClient(cfg.DataDir).OpenWeb(t.Context())
	require.NoError(t, err)
	front, _, _ := strings.Cut(opened.URL, "/open/")
	_, _, cookies := visit(t, opened.URL, nil)
	require.Len(t, cookies, 1)
	pair, err := tls.LoadX509KeyPair(certFile, keyFile)
	require.NoError(t, err)
	code, _ := r.push("event-1", "event-<script>2")
	require.Less(t, code, 300)

	for path, want := range map[string][]string{
		"/streaming":                      {"acme/live"},
		"/streaming/acme/live?days=1":     {"The last day", "Plan the silence"},
		"/sinks":                          {"<bdi>file</bdi>", "Replay a time"},
		"/sinks/letters?since=2026-01-01": {"No dead letter fits"},
		"/sinks/letters?since=nonsense":   {"cannot be read"},
		"/live":                           {"event-1", "&lt;script&gt;2"},
		"/live?match=" + url.QueryEscape(`id == "event-1"`): {"event-1", "1 shown, "},
		"/live?match=nonsense(":                             {"role=\"alert\""},
		"/policies":                                         {"&lt;b&gt;because&lt;/b&gt;"},
		"/sessions":                                         {"(by link)"},
	} {
		status := http.StatusOK
		if strings.Contains(path, "nonsense") {
			status = http.StatusBadRequest // the page is the same, with what is wrong
		}
		code, body, _ := visit(t, front+path, cookies[0])
		assert.Equal(t, status, code, "%s: %s", path, body)
		for _, text := range want {
			assert.Contains(t, body, text, path)
		}
		assert.NotContains(t, body, "<script>2", path)
	}
	for _, path := range []string{"/sinks/letters/7", "/sinks/letters/x", "/jobs/x", "/streaming/acme/other"} {
		code, _, _ := visit(t, front+path, cookies[0])
		assert.Equal(t, http.StatusNotFound, code, path)
	}

	// A viewer sees neither bodies nor the operators' forms, and finds nothing out by an expression.
	_, whole, _ := visit(t, front+"/live", cookies[0])
	assert.Contains(t, whole, "<pre")
	code, body, _ := visit(t, front+"/live?match="+url.QueryEscape(`raw.contains("event")`), nil, pair)
	assert.Equal(t, http.StatusOK, code)
	assert.Contains(t, body, "0 shown, ")
	_, body, _ = visit(t, front+"/live", nil, pair)
	assert.Contains(t, body, "event-1")
	assert.NotContains(t, body, "<pre")
	_, body, _ = visit(t, front+"/streaming/acme/live", nil, pair)
	assert.NotContains(t, body, "Plan the silence")
	code, _, _ = visit(t, front+"/sessions", nil, pair)
	assert.Equal(t, http.StatusForbidden, code)

	// An action tells what it would do, and then does it under the person's name.
	silence := url.Values{"project": {"acme"}, "environment": {"live"}, "hours": {"2"}, "reason": {"upgrade"}}
	code, body = post(t, front+"/silences/add", silence, cookies[0])
	require.Equal(t, http.StatusOK, code, body)
	assert.Contains(t, body, "acme/live would raise no alarm for 2h0m0s")
	list, err := console.NewClient(cfg.DataDir).Silences(t.Context())
	require.NoError(t, err)
	assert.Empty(t, list, "a plan acts")
	silence.Set("confirm", "yes")
	code, body = post(t, front+"/silences/add", silence, nil, pair)
	require.Equal(t, http.StatusForbidden, code, body)
	code, body = post(t, front+"/silences/add", silence, cookies[0])
	require.Equal(t, http.StatusSeeOther, code, body)
	list, err = console.NewClient(cfg.DataDir).Silences(t.Context())
	require.NoError(t, err)
	require.Len(t, list, 1)
	assert.Equal(t, audit.ByLink, list[0].Person.By)

	// A replay by time goes on by itself, and its page shows how it gets on.
	span := url.Values{"sink": {"file"}, "since": {"2026-01-01T00:00"}}
	code, body = post(t, front+"/sinks/replay", span, cookies[0])
	require.Equal(t, http.StatusOK, code, body)
	assert.Contains(t, body, " events of ")
	span.Set("confirm", "yes")
	code, body = post(t, front+"/sinks/replay", span, cookies[0])
	require.Equal(t, http.StatusSeeOther, code, body)
	waiting.Until(t, func() bool {
		_, page, _ := visit(t, front+body, cookies[0])
		return strings.Contains(page, "It has ended.") && !strings.Contains(page, "<dt>Delivered</dt><dd>0</dd>")
	})
	require.NoError(t, r.stop())
}

// post sends a form, and gives the place that it leads to for a redirect, or else the page.
func post(t *testing.T, at string, form url.Values, session *http.Cookie, certs ...tls.Certificate) (code int, body string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, at, strings.NewReader(form.Encode()))
	require.NoError(t, err)
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	if session != nil {
		req.AddCookie(session)
	}
	transport := &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true, Certificates: certs}} //nolint:gosec // of the test
	resp, err := transport.RoundTrip(req)
	require.NoError(t, err)
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	if to := resp.Header.Get("Location"); to != "" {
		return resp.StatusCode, to
	}
	return resp.StatusCode, string(text)
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
