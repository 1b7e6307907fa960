package httpsink

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/config/secret"
	"github.com/auditrelay/auditrelay/relay"
)

const key = "hunter2-the-key"

// client makes a client of a server with this handler.
func client(t *testing.T, handle http.HandlerFunc) *Client {
	t.Helper()
	server := httptest.NewServer(handle)
	t.Cleanup(server.Close)
	target, err := url.Parse(server.URL)
	require.NoError(t, err)
	c, err := New(Options{Target: target, Hide: secret.Hide(1, key), Credential: "check the key", Address: "check url"})
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

// post sends a request that ends with the client.
func (c *Client) post(t *testing.T) (*Answer, error) {
	t.Helper()
	ctx, cancel := c.Until(t.Context())
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.Target.String(), strings.NewReader(key))
	require.NoError(t, err)
	return c.Do(r)
}

func TestErr(t *testing.T) {
	t.Parallel()
	var status int
	c := client(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Location", "https://elsewhere.example.com/"+key)
		w.WriteHeader(status)
		_, _ = io.Copy(w, r.Body)
	})
	for s, want := range map[int]struct {
		text  string
		class relay.Class
	}{
		302: {"302 Found: [redacted] (it redirects to https://elsewhere.example.com, and following", relay.ClassRefused},
		400: {"400 Bad Request: [redacted]", relay.ClassRefused},
		401: {"401 Unauthorized: [redacted] (check the key)", relay.ClassAuthentication},
		404: {"404 Not Found: [redacted] (check url)", relay.ClassRefused},
		429: {"429 Too Many Requests: [redacted]", relay.ClassThrottled},
		504: {"504 Gateway Timeout: [redacted]", relay.ClassTimeout},
		599: {"599: [redacted]", relay.ClassOther},
	} {
		status = s
		a, err := c.post(t)
		require.NoError(t, err)
		err = a.Err(a.Text, "")
		require.ErrorContains(t, err, c.Target.Host+" answered "+want.text)
		assert.Equal(t, want.class, relay.ClassOf(err), s)
		assert.False(t, relay.IsPermanent(err))
		require.ErrorContains(t, a.Err("", "another remedy"), a.StatusText()+" (another remedy)")
	}
}

func TestWaits(t *testing.T) {
	t.Parallel()
	var after string
	var status int
	c := client(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", after)
		w.WriteHeader(status)
	})
	in := func(d time.Duration) string { return time.Now().Add(d).UTC().Format(http.TimeFormat) }
	for header, want := range map[string]time.Duration{
		"": -1, "soon": -1, "-5": -1, "0": 0, " 90 ": 90 * time.Second, "3601": time.Hour, in(-time.Hour): 0, in(48 * time.Hour): time.Hour,
	} {
		for status = range map[int]bool{503: true, 429: true} {
			after = header
			a, err := c.post(t)
			require.NoError(t, err)
			wait, told := relay.RetryDelay(a.Err("", ""))
			switch {
			case want >= 0:
				assert.Equal(t, want, wait, header)
			case status == http.StatusTooManyRequests:
				assert.Equal(t, throttled, wait, header)
			default:
				assert.False(t, told, header)
			}
		}
	}
}

// An answer is known by its status, even if its body has no end.
func TestBodies(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		body        func(w http.ResponseWriter, r *http.Request)
		cut, broken bool
	}{
		"whole":  {func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("a\xff")) }, false, false},
		"long":   {func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, MaxAnswer+1)) }, true, false},
		"hung":   {func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, false, true},
		"broken": {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a, err := client(t, func(w http.ResponseWriter, r *http.Request) {
				w.WriteHeader(http.StatusConflict)
				_ = http.NewResponseController(w).Flush()
				c.body(w, r)
			}).post(t)
			require.NoError(t, err)
			assert.Equal(t, http.StatusConflict, a.Status)
			assert.Equal(t, c.cut, a.Cut)
			assert.Equal(t, c.broken, a.Broken)
			assert.LessOrEqual(t, len(a.Text), MaxAnswer)
			if name == "whole" {
				assert.Equal(t, "a?", a.Text)
			}
		})
	}
}

// No error contains what a peer repeats of a credential, or more of the address than the host.
func TestUnanswered(t *testing.T) {
	t.Parallel()
	c := client(t, func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err == nil {
			_, _ = io.WriteString(conn, "HTTP/1.1 "+key+"\r\n\r\n")
			_ = conn.Close()
		}
	})
	c.Target.Path = "/path"
	_, err := c.post(t)
	require.ErrorContains(t, err, "post to "+c.Target.Host+": ")
	assert.NotContains(t, err.Error(), key)
	assert.NotContains(t, err.Error(), "/path")
	c.Close()
	_, err = c.post(t)
	require.ErrorIs(t, err, ErrClosed)
	ctx, cancel := c.Until(context.Background())
	defer cancel()
	require.ErrorIs(t, context.Cause(ctx), ErrClosed)
}
