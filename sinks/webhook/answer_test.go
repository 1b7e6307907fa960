package webhook

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/config/secret"
	"github.com/auditrelay/auditrelay/relay"
	"github.com/auditrelay/auditrelay/relay/relaytest"
)

func TestAnswersAreClassified(t *testing.T) {
	t.Parallel()
	const acknowledged, retry, suspect, permanent, soon, later = "acknowledged", "retry", "suspect", "permanent", "soon", "later"
	r := newReceiver(t, false)
	s := newSink(t, r.config(t))
	for _, c := range []struct {
		status     int
		retryAfter string
		want       string
		says       string
	}{
		{200, "", acknowledged, ""},
		{201, "", acknowledged, ""},
		{202, "", acknowledged, ""},
		{204, "", acknowledged, ""},
		{299, "", acknowledged, ""},
		{301, "", retry, "set url to the target itself"},
		{304, "", retry, "redirects"},
		{308, "", retry, "to https://elsewhere.example.com, and"},
		{400, "", permanent, "Bad Request"},
		{401, "", retry, "check the secret and the headers"},
		{403, "", suspect, "check the secret and the headers"},
		{404, "", retry, "check the url"},
		{405, "", retry, "check the url"},
		{408, "", suspect, "Request Timeout"},
		{409, "", suspect, "Conflict"},
		{410, "", retry, "check the url"},
		{413, "", permanent, "Too Large"},
		{415, "", retry, "another Content-Type"},
		{422, "7", permanent, "Unprocessable"},
		{425, "", suspect, "Too Early"},
		{429, "", soon, "Too Many"},
		{429, "7", later, "Too Many"},
		{429, "soon", soon, "Too Many"},
		{500, "", suspect, "Internal"},
		{502, "", suspect, "Bad Gateway"},
		{503, "", suspect, "Unavailable"},
		{503, "7", later, "Unavailable"},
		{599, "", suspect, "answered 599"},
	} {
		r.respond(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", c.retryAfter)
			w.Header().Set("Location", "https://elsewhere.example.com/hunter2/path")
			w.WriteHeader(c.status)
		})
		err := s.Deliver(t.Context(), relaytest.Events(3))
		wait, isLater := relay.RetryDelay(err)
		got := retry
		switch {
		case err == nil:
			got = acknowledged
		case relay.IsPermanent(err):
			got = permanent
		case relay.IsSuspect(err):
			got = suspect
		case isLater:
			got = map[time.Duration]string{time.Second: soon, 7 * time.Second: later}[wait]
		}
		assert.Equal(t, c.want, got, "%d: %v", c.status, err)
		if err != nil {
			require.ErrorContains(t, err, c.says)
			assert.Equal(t, c.status == 401 || c.status == 403, relay.ClassOf(err) == relay.ClassAuthentication, "%d", c.status)
			assert.Equal(t, c.status == 429 || c.want == later, relay.ClassOf(err) == relay.ClassThrottled, "%d", c.status)
			require.ErrorContains(t, err, fmt.Sprintf("%s answered %d", r.address, c.status))
			assert.NotContains(t, err.Error(), "hunter2")
		}
	}
}

// A redirect is not followed, not even to the same host.
func TestRedirectsAreNotFollowed(t *testing.T) {
	t.Parallel()
	r, other := newReceiver(t, false), newReceiver(t, false)
	s := newSink(t, r.config(t))
	for _, host := range []string{r.address, other.address} {
		r.respond(func(w http.ResponseWriter, req *http.Request) {
			http.Redirect(w, req, "http://"+host+path, http.StatusTemporaryRedirect)
		})
		require.Error(t, s.Deliver(t.Context(), relaytest.Events(1)))
	}
	assert.Len(t, r.requests, 2)
	assert.Empty(t, other.requests)
}

// A receiver may echo whatever it was sent, at any length.
func TestErrorsAreShortAndClean(t *testing.T) {
	t.Parallel()
	r := newReceiver(t, false)
	cfg := r.config(t)
	cfg.URL = secret.New(cfg.URL.Reveal() + "?key=hunter2-in-the-query")
	cfg.Headers["x-short"], cfg.Headers["x-long"] = secret.New("abcd-hun"), secret.New("abcd-hunter2")
	s := newSink(t, cfg)
	for name, body := range map[string]string{
		"two alike":  "abcd-hunter2",
		"headers":    "you sent Authorization: " + token + " and " + strings.TrimPrefix(token, "Bearer ") + ".",
		"the secret": `{"secret":"` + key + `","raw":"` + key[len("whsec_"):] + `"}`,
		"address":    "Cannot POST " + path + "?key=hunter2-in-the-query, neither " + strings.TrimPrefix(path, "/hooks/") + " nor hunter2-in-the-query",
		"controls":   "a\x00b\x1b[31m\r\nc\u202ed\xff\xfe",
		"long":       strings.Repeat("é", 10_000) + token,
		"cut within": strings.Repeat(" ", 4<<10-len(token)/2) + token,
		"endless":    strings.Repeat("x", 10<<20),
	} {
		r.respond(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusInternalServerError)
			_, _ = w.Write([]byte(body))
		})
		err := s.Deliver(t.Context(), relaytest.Events(1))
		require.ErrorContains(t, err, "500", name)
		text := fmt.Sprintf("%v %+v", err, err)
		assert.Less(t, len(err.Error()), 100+4*300, name)
		assert.NotContains(t, text, "ter2", name)
		assert.NotContains(t, text, "MfKQ9r8GKYqr", name)
		assert.NotRegexp(t, `[\x00-\x1f\x7f\x{202e}\x{fffd}]|\\x`, text, name)
	}
	r.respond(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no such tenant", http.StatusConflict) })
	require.ErrorContains(t, s.Deliver(t.Context(), relaytest.Events(1)), `409 Conflict: no such tenant`)
}

// A status is an answer, even if its body never comes.
func TestBodyThatNeverEnds(t *testing.T) {
	t.Parallel()
	r := newReceiver(t, false)
	s := newSink(t, r.config(t))
	for status, acknowledged := range map[int]bool{200: true, 500: false} {
		r.respond(func(w http.ResponseWriter, req *http.Request) {
			w.WriteHeader(status)
			_, _ = w.Write([]byte("and then "))
			_ = http.NewResponseController(w).Flush()
			<-req.Context().Done()
		})
		start := time.Now()
		err := s.Deliver(t.Context(), relaytest.Events(1))
		assert.Equal(t, acknowledged, err == nil, "%v", err)
		assert.Less(t, time.Since(start), time.Minute)
	}
}

// A connection is reused, since each answer is read to its end.
func TestConnectionIsKept(t *testing.T) {
	t.Parallel()
	r := newReceiver(t, false)
	r.respond(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(strings.Repeat("ok", 5000))) })
	s := newSink(t, r.config(t))
	for range 5 {
		require.NoError(t, s.Deliver(t.Context(), relaytest.Events(1)))
	}
	for _, req := range r.requests {
		assert.Equal(t, r.requests[0].RemoteAddr, req.RemoteAddr)
	}
}

func TestErrorsOfTheNetworkHideTheAddress(t *testing.T) {
	t.Parallel()
	s := newSink(t, config.Webhook{URL: secret.New("http://127.0.0.1:1" + path)})
	err := s.Deliver(t.Context(), relaytest.Events(1))
	require.ErrorContains(t, err, "post to 127.0.0.1:1: dial tcp 127.0.0.1:1")
	assert.NotContains(t, err.Error(), "hunter2")
	assert.False(t, relay.IsPermanent(err))
}

func TestNewNamesTheSetting(t *testing.T) {
	t.Parallel()
	_, err := New(complete(t, config.Webhook{URL: secret.New("https://a"), TLS: &config.TLSClient{CAFile: "nowhere"}}), Options{})
	require.ErrorContains(t, err, "tls: read CA file")
}
