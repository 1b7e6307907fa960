package admin

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/config/secret"
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
	h := New(prometheus.NewRegistry(), Options{})
	code, body := get(t, h, "/readyz")
	assert.Equal(t, 503, code, "before the start")
	assert.Equal(t, "process: not ready: it is starting, and takes no pushes yet\n", body)

	h.Running()
	says := func(name, remark string, err error) {
		h.AddCheck(Check{name, func(context.Context) (string, error) { return remark, err }})
	}
	says("journal", "3% of the budget", nil)
	says("sinks", "warning: kafka fails:\n\x1b[2Jno such host", nil)
	code, body = get(t, h, "/readyz")
	assert.Equal(t, 200, code, "a warning has nobody reroute pushes")
	assert.Equal(t, "process: running\njournal: 3% of the budget\nsinks: warning: kafka fails: [2Jno such host\n", body)

	says("ingest", "", errors.New("closed"))
	code, body = get(t, h, "/readyz")
	assert.Equal(t, 503, code)
	assert.Contains(t, body, "ingest: not ready: closed")

	code, body = get(t, h, "/readyz?format=json")
	assert.Equal(t, 503, code)
	assert.JSONEq(t, `{"ready":false,"parts":[
		{"name":"process","state":"ok","reason":"running"},
		{"name":"journal","state":"ok","reason":"3% of the budget"},
		{"name":"sinks","state":"warning","reason":"kafka fails:\n\u001b[2Jno such host"},
		{"name":"ingest","state":"not_ready","reason":"closed"}]}`, body)

	code, _ = get(t, h, "/healthz")
	assert.Equal(t, 200, code, "alive all the same")
}

func TestAStoppingProcessIsNotReady(t *testing.T) {
	t.Parallel()
	h := New(prometheus.NewRegistry(), Options{})
	h.Running()
	h.Stopping()
	code, body := get(t, h, "/readyz")
	assert.Equal(t, 503, code)
	assert.Equal(t, "process: not ready: it is stopping, and takes no more pushes\n", body)
}

func TestTheFormOfReadiness(t *testing.T) {
	t.Parallel()
	h := New(prometheus.NewRegistry(), Options{})
	for _, c := range []struct{ query, accept, want string }{
		{"", "", "text/plain; charset=utf-8"},
		{"", "*/*", "text/plain; charset=utf-8"},
		{"", "application/json", "application/json"},
		{"", "text/html,application/json;q=0.9,*/*", "text/plain; charset=utf-8"},
		{"?format=json", "text/html", "application/json"},
		{"?format=text", "application/json", "text/plain; charset=utf-8"},
	} {
		r := httptest.NewRequest(http.MethodGet, "/readyz"+c.query, http.NoBody)
		r.Host = "localhost"
		r.Header.Set("Accept", c.accept)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		assert.Equal(t, c.want, w.Header().Get("Content-Type"), "%+v", c)
	}
}

func TestStatusAndMetrics(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	c := prometheus.NewCounter(prometheus.CounterOpts{Name: "auditrelay_x_total", Help: "x"})
	reg.MustRegister(c)
	h := New(reg, Options{})
	h.AddStatus("good", func(context.Context) (any, error) { return []int{1}, nil })
	h.AddStatus("bad", func(context.Context) (any, error) { return nil, errors.New("no") })
	code, body := get(t, h, "/status")
	assert.Equal(t, 200, code)
	assert.JSONEq(t, `{"good":[1],"bad":{"error":"no"},"ready":{"ready":false,"parts":[
		{"name":"process","state":"not_ready","reason":"it is starting, and takes no pushes yet"}]}}`, body)
	_, body = get(t, h, "/metrics")
	assert.Contains(t, body, "auditrelay_x_total 0")
	code, _ = get(t, h, "/nothing")
	assert.Equal(t, 404, code)
}

func TestTheTokenIsAskedFor(t *testing.T) {
	t.Parallel()
	h := New(prometheus.NewRegistry(), Options{Token: secret.New("horse-battery-staple"), Pprof: true})
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	for _, c := range []struct {
		path, authorization string
		want                int
	}{
		{"/healthz", "", 200},
		{"/readyz", "", 503},
		{"/status", "", 401},
		{"/status", "Bearer wrong", 401},
		{"/status", "Bearer ", 401},
		{"/status", "Basic horse-battery-staple", 401},
		{"/status", "Bearer horse-battery-staple", 200},
		{"/status", "bearer horse-battery-staple", 200},
		{"/metrics", "", 401},
		{"/metrics", "Bearer horse-battery-staple", 200},
		{"/debug/pprof/", "", 401},
		{"/debug/pprof/heap", "", 401},
		{"/debug/pprof/heap", "Bearer horse-battery-staple", 200},
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, srv.URL+c.path, http.NoBody)
		require.NoError(t, err)
		req.Header.Set("Authorization", c.authorization)
		resp, err := srv.Client().Do(req)
		require.NoError(t, err)
		body, err := io.ReadAll(resp.Body)
		require.NoError(t, errors.Join(err, resp.Body.Close()))
		assert.Equal(t, c.want, resp.StatusCode, "%s with %q", c.path, c.authorization)
		if c.want == 401 {
			assert.Equal(t, `Bearer realm="auditrelay"`, resp.Header.Get("WWW-Authenticate"))
			assert.NotContains(t, string(body), "horse")
		}
	}
}

func TestProfilesAreServedWhereAskedFor(t *testing.T) {
	t.Parallel()
	code, _ := get(t, New(prometheus.NewRegistry(), Options{}), "/debug/pprof/")
	assert.Equal(t, 404, code)
	code, body := get(t, New(prometheus.NewRegistry(), Options{Pprof: true}), "/debug/pprof/goroutine?debug=1")
	assert.Equal(t, 200, code)
	assert.Contains(t, body, "goroutine profile")
}

// A web page can have its own name point at the listener, or send a request to it from
// another site. Neither is answered; programs on the machine and in the network are.
func TestOnlyProgramsAreAnswered(t *testing.T) {
	t.Parallel()
	h := New(prometheus.NewRegistry(), Options{Hosts: []string{"auditrelay"}})
	for _, c := range []struct {
		host, site, origin string
		want               int
	}{
		{"127.0.0.1:9100", "", "", 200},
		{"localhost:9100", "", "", 200},
		{"LOCALHOST.", "", "", 200},
		{"[::1]:9100", "", "", 200},
		{"10.0.3.7:9100", "", "", 200},
		{"auditrelay:9100", "", "", 200},
		{"AuditRelay", "", "", 200},
		{"", "", "", 200},
		{"127.0.0.1:9100", "none", "", 200},
		{"127.0.0.1:9100", "same-origin", "http://127.0.0.1:9100", 200},
		{"rebind.attacker.example", "", "", 403},
		{"rebind.attacker.example:9100", "same-origin", "http://rebind.attacker.example:9100", 403},
		{"localhost.attacker.example", "", "", 403},
		{"127.0.0.1.attacker.example:9100", "", "", 403},
		{"0x7f000001", "", "", 403},
		{"127.0.0.1:9100", "cross-site", "", 403},
		{"127.0.0.1:9100", "same-site", "", 403},
		{"127.0.0.1:9100", "", "https://attacker.example", 403},
		{"127.0.0.1:9100", "", "null", 403},
	} {
		for _, path := range []string{"/healthz", "/metrics", "/status"} {
			r := httptest.NewRequest(http.MethodGet, path, http.NoBody)
			r.Host = c.host
			r.Header.Set("Sec-Fetch-Site", c.site)
			r.Header.Set("Origin", c.origin)
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			assert.Equal(t, c.want, w.Code, "%s: %+v", path, c)
		}
	}
}

// Without the token, nothing but fixed words is shown.
func TestPrivatePagesNeedTheGeneratedToken(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), TokenFile)
	token, err := FileToken(path)
	require.NoError(t, err)
	again, err := FileToken(path)
	require.NoError(t, err)
	require.Equal(t, token.Reveal(), again.Reveal())
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode())
	damaged := []byte(token.Reveal())
	damaged[3] = 0x7f // a control character
	for what, text := range map[string][]byte{"an emptied file": []byte("\n"), "what no header can carry": damaged} {
		require.NoError(t, os.WriteFile(path, text, 0o600))
		other, err := FileToken(path)
		require.NoError(t, err)
		require.NotEqual(t, token.Reveal(), other.Reveal(), what)
		require.NotEqual(t, string(text), other.Reveal(), what)
	}
	require.NoError(t, os.Remove(path))
	require.NoError(t, os.MkdirAll(filepath.Join(path, "x"), 0o700))
	other, err := FileToken(path)
	require.Error(t, err)
	require.Len(t, other.Reveal(), len(token.Reveal()), "the process has one all the same")

	h := New(prometheus.NewRegistry(), Options{Private: token})
	h.Running()
	h.AddCheck(Check{"sinks", func(context.Context) (string, error) { return "warning: receiver: 123-45-6789 is refused", nil }})
	h.AddCheck(Check{"journal", func(context.Context) (string, error) { return "", errors.New("123-45-6789") }})
	h.AddCheck(Check{"letters", func(context.Context) (string, error) { return "123-45-6789", nil }})
	h.Handle("/tlog/", http.NotFoundHandler())
	ask := func(path, authorization string) (int, string) {
		r := httptest.NewRequest(http.MethodGet, path, http.NoBody)
		r.Host = "localhost"
		r.Header.Set("Authorization", authorization)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w.Code, w.Body.String()
	}
	for _, authorization := range []string{"", "Bearer", "Bearer x", "Basic " + token.Reveal()} {
		for path, want := range map[string]int{"/status": 401, "/tlog/": 401, "/tlog/0/checkpoint": 401, "/metrics": 200, "/healthz": 200, "/readyz": 503, "/readyz?format=json": 503} {
			code, body := ask(path, authorization)
			require.Equal(t, want, code, path)
			require.NotContains(t, body, "6789", path)
			require.NotContains(t, body, token.Reveal())
		}
	}
	_, body := ask("/readyz", "")
	require.Contains(t, body, "process: running\nsinks: warning: it needs a look")
	_, body = ask("/readyz", "Bearer "+token.Reveal())
	require.Equal(t, 3, strings.Count(body, "6789"))
	code, _ := ask("/status", "Bearer "+token.Reveal())
	require.Equal(t, 200, code)
}
