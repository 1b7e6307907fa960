package web

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/health"
	"github.com/auditrelay/auditrelay/internal/workspace"
)

var ann = workspace.Person{User: "ann", Host: "desk"}

// hostile is a text that a page must show as text.
const hostile = `<script>alert(1)</script>`

func serve(t *testing.T) (*Console, *httptest.Server) {
	t.Helper()
	c := New(Options{Logger: slog.New(slog.DiscardHandler), Status: func(context.Context) map[string]any {
		return map[string]any{
			"environments": []health.Status{{Project: "shop", Environment: "live", State: health.Silent, Reason: hostile, Action: "look at the sender"}},
			"journal":      map[string]string{"error": "the disk is away"},
		}
	}})
	server := httptest.NewServer(c)
	t.Cleanup(server.Close)
	return c, server
}

// answer is a response that was read.
type answer struct {
	StatusCode int
	Header     http.Header
	Cookies    []*http.Cookie
}

// send makes a request with a session's cookie. It follows no redirect.
func send(t *testing.T, method, url string, session *http.Cookie, headers ...string) (answer, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, http.NoBody)
	require.NoError(t, err)
	if session != nil {
		req.AddCookie(session)
	}
	for i := 0; i < len(headers); i += 2 {
		if headers[i] == "Host" {
			req.Host = headers[i+1]
		}
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := http.DefaultTransport.RoundTrip(req)
	require.NoError(t, err)
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return answer{resp.StatusCode, resp.Header, resp.Cookies()}, string(text)
}

func login(t *testing.T, c *Console, at string) *http.Cookie {
	t.Helper()
	path, _ := c.Link(ann)
	resp, body := send(t, http.MethodGet, at+path, nil)
	require.Equal(t, http.StatusSeeOther, resp.StatusCode, body)
	require.Len(t, resp.Cookies, 1)
	return resp.Cookies[0]
}

func TestALinkLogsInOnce(t *testing.T) {
	t.Parallel()
	c, server := serve(t)
	path, _ := c.Link(ann)
	resp, _ := send(t, http.MethodGet, server.URL+path, nil)
	require.Equal(t, http.StatusSeeOther, resp.StatusCode)
	cookie := resp.Cookies[0]
	assert.True(t, strings.HasPrefix(cookie.Name, "__Host-"))
	assert.True(t, cookie.Secure && cookie.HttpOnly && cookie.Path == "/" && cookie.Domain == "")
	assert.Equal(t, http.SameSiteStrictMode, cookie.SameSite)

	resp, _ = send(t, http.MethodGet, server.URL+path, nil)
	assert.Equal(t, http.StatusForbidden, resp.StatusCode)
	assert.Empty(t, resp.Cookies)

	resp, _ = send(t, http.MethodGet, server.URL+"/", nil)
	assert.Equal(t, http.StatusUnauthorized, resp.StatusCode)
	resp, body := send(t, http.MethodGet, server.URL+"/", cookie)
	assert.Equal(t, http.StatusOK, resp.StatusCode)
	assert.Contains(t, body, "ann@desk")
}

func TestALogoutEndsTheSession(t *testing.T) {
	t.Parallel()
	c, server := serve(t)
	cookie := login(t, c, server.URL)
	resp, _ := send(t, http.MethodPost, server.URL+"/logout", cookie, "Sec-Fetch-Site", "cross-site")
	assert.Equal(t, http.StatusForbidden, resp.StatusCode)
	resp, _ = send(t, http.MethodGet, server.URL+"/", cookie)
	assert.Equal(t, http.StatusOK, resp.StatusCode, "another site has logged the person out")
	send(t, http.MethodPost, server.URL+"/logout", cookie)
	resp, _ = send(t, http.MethodGet, server.URL+"/", cookie)
	assert.Equal(t, http.StatusUnauthorized, resp.StatusCode)
}

func TestLinksAndSessionsEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSessions()
		old, _ := s.link(ann)
		time.Sleep(linkLength)
		_, _, ok := s.begin(old)
		assert.False(t, ok, "an old link is good")
		fresh, _ := s.link(ann)
		token, _, ok := s.begin(fresh)
		require.True(t, ok)
		r := &http.Request{Header: http.Header{"Cookie": {cookieName + "=" + token}}}
		_, ok = s.person(r)
		assert.True(t, ok)
		time.Sleep(sessionLength)
		_, ok = s.person(r)
		assert.False(t, ok, "an old session is good")
		for range 3 * mostGrants {
			s.link(ann)
		}
		assert.LessOrEqual(t, len(s.links), mostGrants)
	})
}

func TestThePageShowsTextAsText(t *testing.T) {
	t.Parallel()
	c, server := serve(t)
	resp, body := send(t, http.MethodGet, server.URL+"/", login(t, c, server.URL))
	assert.NotContains(t, body, "<script")
	assert.Contains(t, body, "&lt;script&gt;alert(1)")
	assert.Contains(t, body, "look at the sender")
	assert.Contains(t, body, "journal: the disk is away")
	assert.Equal(t, policy, resp.Header.Get("Content-Security-Policy"))
	resp, _ = send(t, http.MethodGet, server.URL+"/style.css", nil)
	assert.Equal(t, http.StatusOK, resp.StatusCode)
	assert.Contains(t, resp.Header.Get("Content-Type"), "text/css")
}

// A web page can point a name of its own at the listener.
func TestAStrangeNameIsRefused(t *testing.T) {
	t.Parallel()
	c, server := serve(t)
	resp, _ := send(t, http.MethodGet, server.URL+"/", login(t, c, server.URL), "Host", "rebound.example.com")
	assert.Equal(t, http.StatusMisdirectedRequest, resp.StatusCode)
}
