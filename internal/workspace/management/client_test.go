package management

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/config/secret"
)

const (
	testKey    = "workspace-key-1"
	testSecret = "ws-secret-0123456789"
)

func options(base string) Options {
	return Options{BaseURL: base, KeyID: testKey, Secret: secret.New(testSecret), RequestsPerSecond: 10000}
}

// serve starts a server and returns a client of it.
func serve(t *testing.T, h http.HandlerFunc) *Client {
	t.Helper()
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	c, err := New(options(srv.URL))
	require.NoError(t, err)
	return c
}

// serveOnce is serve with a client that repeats no call.
func serveOnce(t *testing.T, h http.HandlerFunc) *Client {
	t.Helper()
	c := serve(t, h)
	c.options.MaxAttempts = 1
	return c
}

func answer(w http.ResponseWriter, status int, body string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, body)
}

func TestNewRefuses(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*Options){
		"no address":       func(o *Options) { o.BaseURL = "" },
		"relative":         func(o *Options) { o.BaseURL = "/pwa" },
		"plain http":       func(o *Options) { o.BaseURL = "http://management.example.com" },
		"lookalike":        func(o *Options) { o.BaseURL = "http://localhost.example.com" },
		"other scheme":     func(o *Options) { o.BaseURL = "ftp://127.0.0.1" },
		"credentials":      func(o *Options) { o.BaseURL = "https://user:hunter2hunter2@example.com" },
		"query":            func(o *Options) { o.BaseURL = "https://example.com/?a=hunter2hunter2" },
		"no key":           func(o *Options) { o.KeyID = "" },
		"colon in key":     func(o *Options) { o.KeyID = "a:b" },
		"no secret":        func(o *Options) { o.Secret = secret.Text{} },
		"negative timeout": func(o *Options) { o.Timeout = -1 },
		"negative rate":    func(o *Options) { o.RequestsPerSecond = -1 },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := options("https://example.com")
			change(&o)
			_, err := New(o)
			require.Error(t, err)
			assert.NotContains(t, err.Error(), "hunter2")
		})
	}
}

func TestNewTakes(t *testing.T) {
	t.Parallel()
	for _, base := range []string{
		"https://example.com", "https://example.com/base/", "http://localhost:1", "http://127.8.0.1:2", "http://[::1]:3",
	} {
		_, err := New(options(base))
		assert.NoError(t, err, base)
	}
}

func TestNewRegistersOnce(t *testing.T) {
	t.Parallel()
	o := options("https://example.com")
	o.Registerer = prometheus.NewRegistry()
	_, err := New(o)
	require.NoError(t, err)
	require.Panics(t, func() { _, _ = New(o) }, "a second client of one registry is a mistake in the wiring")
}

func TestRequestCarriesBasicAuthAndJSON(t *testing.T) {
	t.Parallel()
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		user, password, ok := r.BasicAuth()
		assert.True(t, ok && user == testKey && password == testSecret)
		assert.Equal(t, "application/json", r.Header.Get("Content-Type"))
		body, _ := io.ReadAll(r.Body)
		assert.JSONEq(t, `{"name":"New"}`, string(body))
		answer(w, 201, `{"request_id":"r1","status_code":201,"project":{"project_slug":"p","name":"New","vertical":"MOON","x":1}}`)
	})
	a, err := c.Change(t.Context(), RenameProject, map[string]string{"name": "New"}, "p")
	require.NoError(t, err)
	assert.Equal(t, Receipt{RequestID: "r1", StatusCode: 201}, a.Receipt)
	assert.JSONEq(t, `{"project_slug":"p","name":"New","vertical":"MOON","x":1}`, string(a.Raw))
}

func TestPathParametersStayOneSegment(t *testing.T) {
	t.Parallel()
	var got string
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		got = r.RequestURI
		answer(w, 200, `{"project":{}}`)
	})
	for slug, want := range map[string]string{
		"a/b":        "a%2Fb",
		"../secrets": "..%2Fsecrets",
		"a?b#c":      "a%3Fb%23c",
		"100%":       "100%25",
		"ä b":        "%C3%A4%20b",
		"%2e%2e":     "%252e%252e",
	} {
		_, err := c.Project(t.Context(), slug)
		require.NoError(t, err)
		assert.Equal(t, "/pwa/v3/projects/"+want, got)
	}
	got = ""
	for _, slug := range []string{"", ".", ".."} {
		_, err := c.Project(t.Context(), slug)
		require.ErrorContains(t, err, "project_slug")
	}
	assert.Empty(t, got, "nothing was sent")
}

func TestRedirects(t *testing.T) {
	t.Parallel()
	other := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("another host was called, authorization %q", r.Header.Get("Authorization"))
	}))
	t.Cleanup(other.Close)
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/pwa/v3/projects/away":
			http.Redirect(w, r, other.URL, http.StatusTemporaryRedirect)
		case r.Method == http.MethodGet && r.URL.Path == "/pwa/v3/projects/here":
			http.Redirect(w, r, "/pwa/v3/projects/there", http.StatusFound)
		case r.Method == http.MethodPatch:
			http.Redirect(w, r, "/pwa/v3/projects/there", http.StatusFound)
		default:
			answer(w, 200, `{"project":{"name":"there"}}`)
		}
	})
	_, err := c.Project(t.Context(), "away")
	var api *APIError
	require.ErrorAs(t, err, &api)
	assert.Equal(t, 307, api.Status)
	assert.Contains(t, api.Message, "it redirects to "+other.URL+", where the key is not sent: correct workspace.base_url")
	a, err := c.Project(t.Context(), "here")
	require.NoError(t, err)
	assert.JSONEq(t, `{"name":"there"}`, string(a.Raw))
	_, err = c.Change(t.Context(), RenameProject, map[string]string{"name": "x"}, "here")
	require.ErrorAs(t, err, &api, "a write must not turn into a read that succeeds")
}

func TestAnswerSizeIsBounded(t *testing.T) {
	t.Parallel()
	calls := 0
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		calls++
		answer(w, 200, `{"project":{"name":"`+string(make([]byte, 4096))+`"}}`)
	}))
	t.Cleanup(srv.Close)
	o := options(srv.URL)
	o.MaxAnswerBytes = 1024
	c, err := New(o)
	require.NoError(t, err)
	_, err = c.Project(t.Context(), "p")
	require.ErrorIs(t, err, ErrAnswerTooLarge)
	assert.Equal(t, 1, calls, "it would be as large the next time")
}

func TestAnswersThatAreNone(t *testing.T) {
	t.Parallel()
	for name, body := range map[string]string{
		"html": "<html>", "list": "[]", "cut": `{"project":{`, "other type": `{"project":[]}`, "null": `{"project":null}`, "missing": `{}`, "empty": "",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := serveOnce(t, func(w http.ResponseWriter, _ *http.Request) { answer(w, 200, body) })
			_, err := c.Project(t.Context(), "p")
			require.ErrorContains(t, err, "read project: ")
		})
	}
}

// TestA200ThatIsAnError: a gateway may give every answer a 200. Before, an error in one passed
// for the removal of the resource, and a PUT's for a success.
func TestA200ThatIsAnError(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]string{
		`{"status_code":503,"request_id":"r1","error_type":"unavailable"}`:                                            "management API answered 503 unavailable: Service Unavailable (request r1)",
		`{"status_code":200,"request_id":"r1","error_type":"internal_server_error"}`:                                  "management API answered 500 internal_server_error: Internal Server Error (request r1)",
		`{"status_code":503,"request_id":"r1","error_message":"down"}`:                                                "management API answered 503: down (request r1)",
		`{"status_code":500,"request_id":"r1","event_log_streaming_config":{}}`:                                       "management API answered 500: Internal Server Error (request r1)",
		`{"status_code":404,"request_id":"r1","error_type":"event_log_streaming_config_not_found"}`:                   "management API answered 404 event_log_streaming_config_not_found: Not Found (request r1)",
		`{"status_code":"x","request_id":"r1","error_type":"e","error_message":"ws-secret-0123456789 is what I got"}`: "management API answered 500 e: [redacted] is what I got (request r1)",
	} {
		c := serveOnce(t, func(w http.ResponseWriter, _ *http.Request) { answer(w, 200, body) })
		_, err := c.EventLogStreaming(t.Context(), "p", "e", GrafanaLoki)
		var api *APIError
		require.ErrorAs(t, err, &api, body)
		assert.Equal(t, want, api.Error())
		c = serveOnce(t, func(w http.ResponseWriter, _ *http.Request) { answer(w, 200, body) })
		a, err := c.SetEventLogStreaming(t.Context(), "p", "e", lokiDestination, secret.New(lokiPassword))
		require.ErrorAs(t, err, &api, body)
		assert.Zero(t, a.StatusCode)
	}
}

// TestAPageInPlaceOfAnAnswer: a captive portal's, say. The error says what to do.
func TestAPageInPlaceOfAnAnswer(t *testing.T) {
	t.Parallel()
	c := serveOnce(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = io.WriteString(w, "\n<html><title>Sign in</title>\x1b[2J"+strings.Repeat("x", 5000))
	})
	_, err := c.EventLogStreaming(t.Context(), "p", "e", GrafanaLoki)
	require.ErrorIs(t, err, ErrUnreachable)
	require.ErrorContains(t, err, `(HTTP 200, "text/html", beginning with "<html><title>Sign in</title>`)
	require.ErrorContains(t, err, "check workspace.base_url, and any proxy before it")
	assert.Less(t, len(err.Error()), 1000)
}

// TestARequestIDIsShortAndNoSecret: it goes into the trail, into logs, and to terminals.
func TestARequestIDIsShortAndNoSecret(t *testing.T) {
	t.Parallel()
	c := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		answer(w, 200, `{"project":{},"request_id":"ws-secret-0123456789\u001b[2J`+strings.Repeat("x", 1<<20)+`"}`)
	})
	a, err := c.Project(t.Context(), "p")
	require.NoError(t, err)
	assert.Len(t, []rune(a.RequestID), maxErrorText)
	assert.Equal(t, "[redacted] [2Jxx", a.RequestID[:16])
}

func TestRawSurvivesAShapeThatIsNotKnown(t *testing.T) {
	t.Parallel()
	c := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		answer(w, 200, `{"project":["x"]}`)
	})
	a, err := c.Project(t.Context(), "p")
	require.EqualError(t, err, "read project: decode project: it is an array")
	assert.JSONEq(t, `["x"]`, string(a.Raw))
}

func TestDeleteTakesAny2xx(t *testing.T) {
	t.Parallel()
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		assert.Equal(t, http.MethodDelete, r.Method)
		w.WriteHeader(http.StatusNoContent)
	})
	receipt, err := c.Change(t.Context(), DeleteSecret, nil, "p", "e", "secret-1")
	require.NoError(t, err)
	assert.Equal(t, 204, receipt.StatusCode)
}

// TestAListThatIsLeftOut is empty in an answer in the API's form, and absent in another.
func TestAListThatIsLeftOut(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]string{
		`{"request_id":"r","status_code":200}`:                      "the API's answer had no country_codes: it is taken for an empty list",
		`{"request_id":"r","status_code":200,"country_codes":null}`: "the API's answer had null for country_codes: it is taken for an empty list",
		`{"request_id":"r"}`:                                        "the API's answer had no country_codes: it is taken for an empty list",
		`{"country_codes":null}`:                                    "the API's answer had null for country_codes: it is taken for an empty list",
		`{"country_codes":[]}`:                                      "",
	} {
		c := serve(t, func(w http.ResponseWriter, _ *http.Request) { answer(w, 200, body) })
		a, err := c.SMSCountryCodes(t.Context(), "p", "e")
		require.NoError(t, err, body)
		assert.Equal(t, `[]`, string(a.Raw), body)
		assert.Equal(t, want, a.Note, body)
	}
	for _, body := range []string{`{}`, `{"request_id":""}`, `{"status_code":200}`, `{"request_id":"r","status_code":500}`, `{"request_id":"r","status_code":null}`} {
		c := serveOnce(t, func(w http.ResponseWriter, _ *http.Request) { answer(w, 200, body) })
		_, err := c.SMSCountryCodes(t.Context(), "p", "e")
		require.Error(t, err, body)
	}
	c := serve(t, func(w http.ResponseWriter, _ *http.Request) { answer(w, 200, `{"request_id":"r","status_code":200}`) })
	_, err := c.RBACPolicy(t.Context(), "p", "e")
	require.ErrorIs(t, err, ErrNoResource, "a policy is no list")
}

func TestRateLimit(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { answer(w, 200, `{"project":{}}`) }))
	t.Cleanup(srv.Close)
	o := options(srv.URL)
	o.RequestsPerSecond = 0.001
	c, err := New(o)
	require.NoError(t, err)
	_, err = c.Project(t.Context(), "p")
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_, err = c.Project(ctx, "p")
	require.ErrorContains(t, err, "rate limit", "the next turn lies behind the deadline")
}
