package datadog

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/config/secret"
	"github.com/auditrelay/auditrelay/internal/testbed/realservers"
	"github.com/auditrelay/auditrelay/relay"
	"github.com/auditrelay/auditrelay/relay/relaytest"
)

func TestAnswers(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		answer    realservers.DatadogAnswer
		permanent bool
		after     time.Duration
		want      string
	}{
		{realservers.DatadogAnswer{Status: 400, Body: `{"errors":[{"detail":"bad payload"}]}`}, true, 0, `400 Bad Request: bad payload`},
		{realservers.DatadogAnswer{Status: 400, Body: `{"errors":["text"]}`}, true, 0, "400 Bad Request"},
		{realservers.DatadogAnswer{Status: 413, Body: `{"errors":[{"title":"Too Large"}]}`}, true, 0, `413 Request Entity Too Large: Too Large`},
		{realservers.DatadogAnswer{Status: 400, Header: map[string]string{"Content-Type": "text/html"}, Body: "<html>Bad Request"}, false, 0, "400 Bad Request"},
		{realservers.DatadogAnswer{Status: 413, Header: map[string]string{"Content-Type": "text/html"}, Body: "<html>Too Large"}, true, 0, "413 Request Entity Too Large"},
		{realservers.DatadogAnswer{Status: 401}, false, 0, "check api_key"},
		{realservers.DatadogAnswer{Status: 403, Body: `{"errors":[{"detail":"API key is invalid"}]}`}, false, 0, "check api_key"},
		{realservers.DatadogAnswer{Status: 408}, false, 0, "408 Request Timeout"},
		{realservers.DatadogAnswer{Status: 429, Header: map[string]string{"X-RateLimit-Reset": "7", "Retry-After": "3"}}, false, 7 * time.Second, "429"},
		{realservers.DatadogAnswer{Status: 429, Header: map[string]string{"Retry-After": "3"}}, false, 3 * time.Second, "429"},
		{realservers.DatadogAnswer{Status: 429, Header: map[string]string{"X-RateLimit-Reset": "x"}}, false, time.Second, "429"},
		{realservers.DatadogAnswer{Status: 500}, false, 0, "500"},
		{realservers.DatadogAnswer{Status: 503, Header: map[string]string{"Retry-After": "20"}}, false, 20 * time.Second, "503"},
		{realservers.DatadogAnswer{Status: 404, Body: "<html>"}, false, 0, "check site or url"},
		{realservers.DatadogAnswer{Status: 307, Header: map[string]string{"Location": "/x"}}, false, 0, "it redirects"},
		{realservers.DatadogAnswer{Status: 204}, false, 0, "is no acknowledgement"},
		{realservers.DatadogAnswer{Status: 200, Body: "<html>welcome"}, false, 0, "is no acknowledgement"},
		{realservers.DatadogAnswer{Status: 200, Body: `{"errors":["Forbidden"]}`}, false, 0, "its body tells of an error"},
		{realservers.DatadogAnswer{Status: 202, Body: `{"errors":[{"detail":"dropped"}]}`}, false, 0, "202 Accepted: dropped (its body tells of an error"},
	} {
		t.Run(fmt.Sprint(c.answer.Status, c.answer.Header), func(t *testing.T) {
			t.Parallel()
			d := newIntake(t)
			d.Respond(func(int, []string) *realservers.DatadogAnswer { return &c.answer })
			err := newSink(t, d.URL, nil).Deliver(t.Context(), relaytest.Events(1))
			require.ErrorContains(t, firstOf(err), c.want)
			assert.Equal(t, c.permanent, relay.IsPermanent(firstOf(err)))
			assert.Equal(t, c.answer.Status == 401 || c.answer.Status == 403, relay.ClassOf(err) == relay.ClassAuthentication)
			after, _ := relay.RetryDelay(err)
			assert.Equal(t, c.after, after)
			assert.Empty(t, d.taken())
		})
	}
}

// firstOf is the error of the first event.
func firstOf(err error) error {
	if partial, ok := err.(*relay.PartialError); ok { //nolint:errorlint // Deliver's own
		return partial.Failures[0].Err
	}
	return err
}

// From a site, only 202 counts. From another intake 200 counts too, if its body can be read or
// is empty.
func TestAcknowledgement(t *testing.T) {
	t.Parallel()
	for _, body := range []string{"", "{}", `{"errors":[]}`, "plain text"} {
		for status, want := range map[int][2]bool{202: {true, true}, 200: {false, body != "plain text"}} {
			d, tls := newTLSIntake(t)
			d.Respond(func(int, []string) *realservers.DatadogAnswer {
				return &realservers.DatadogAnswer{Status: status, Body: body}
			})
			err := siteSink(t, d, tls, "datadoghq.eu").Deliver(t.Context(), relaytest.Events(1))
			assert.Equal(t, want[0], err == nil, "site: %d %q", status, body)
			s := newSink(t, d.URL, func(c *config.Datadog) { c.TLS = tls })
			err = s.Deliver(t.Context(), relaytest.Events(1))
			assert.Equal(t, want[1], err == nil, "url: %d %q", status, body)
		}
	}
}

// The sink finds refused entries by halving; the others arrive.
func TestRefusedEntriesAreFound(t *testing.T) {
	t.Parallel()
	d := newIntake(t)
	refuse := refusedByTheIntake(d)
	events := relaytest.Events(1200)
	for _, i := range []int{0, 500, 999, 1000} {
		refuse(&events[i])
	}
	events[700].Time = sentAt().Add(-24 * time.Hour)
	named := failed(t, newSink(t, d.URL, nil).Deliver(t.Context(), events))
	require.Len(t, named, 5)
	for _, i := range []int{0, 500, 999, 1000} {
		assert.True(t, relay.IsPermanent(named[i]))
		assert.ErrorContains(t, named[i], "unprocessable entry")
	}
	assert.ErrorContains(t, named[700], "older than", "found before the request was sent, and named in its place")
	assert.Len(t, d.IDs(), 1195)
	assert.Less(t, len(d.Requests()), 100)
}

// After a refusal and then an outage, the entries that were not sent are tried again, and the
// refused ones are not.
func TestRefusalThenOutage(t *testing.T) {
	t.Parallel()
	d := newIntake(t)
	answers := []*realservers.DatadogAnswer{{Status: 413}, {Status: 413}, {Status: 400}, nil, {Status: 502}}
	d.Respond(func(n int, _ []string) *realservers.DatadogAnswer {
		if n < len(answers) {
			return answers[n]
		}
		return nil
	})
	events := relaytest.Events(8) // sent as 0-7, 0-3, 0-1, 0, 1
	named := failed(t, newSink(t, d.URL, nil).Deliver(t.Context(), events))
	assert.Equal(t, idsOf(events[:1]), d.taken())
	require.Len(t, named, 7)
	for i := 1; i < 8; i++ {
		assert.False(t, relay.IsPermanent(named[i]), i)
	}
}

func TestAnswersAreBounded(t *testing.T) {
	t.Parallel()
	for _, status := range []int{202, 400, 500} {
		var written atomic.Int64
		url := serve(t, func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(status)
			for range 1 << 14 { // 1 GiB
				n, err := w.Write([]byte(`"` + strings.Repeat("x", 64<<10-1)))
				written.Add(int64(n))
				if err != nil {
					return
				}
			}
		})
		err := newSink(t, url, nil).Deliver(t.Context(), relaytest.Events(1))
		assert.Equal(t, status == 202, err == nil)
		assert.Equal(t, status == 400, relay.IsPermanent(firstOf(err)))
		assert.Less(t, written.Load(), int64(64<<20))
		if err != nil {
			assert.Less(t, len(firstOf(err).Error()), 600)
		}
	}
}

func TestLongDetailsAreCut(t *testing.T) {
	t.Parallel()
	d := newIntake(t)
	d.Respond(func(int, []string) *realservers.DatadogAnswer {
		return &realservers.DatadogAnswer{Status: 500, Body: `{"errors":[{"detail":"` + strings.Repeat("\\u0001", 5000) + `"}]}`}
	})
	err := newSink(t, d.URL, nil).Deliver(t.Context(), relaytest.Events(1))
	require.Error(t, err)
	assert.Less(t, len(err.Error()), 4*300+200)
	assert.NotContains(t, err.Error(), "\x01")
}

// The key would be sent along to wherever a redirect points.
func TestRedirectsAreNotFollowed(t *testing.T) {
	t.Parallel()
	var reached atomic.Bool
	elsewhere := serve(t, func(http.ResponseWriter, *http.Request) { reached.Store(true) })
	for _, status := range []int{301, 307, 308} {
		url := serve(t, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, elsewhere, status) })
		require.Error(t, newSink(t, url, nil).Deliver(t.Context(), relaytest.Events(1)))
	}
	assert.False(t, reached.Load())
}

func TestNoErrorNamesTheKey(t *testing.T) {
	t.Parallel()
	for name, f := range map[string]http.HandlerFunc{
		"in a detail": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusForbidden)
			_, _ = fmt.Fprintf(w, `{"errors":[{"detail":"key %s is unknown"}]}`, r.Header.Get("DD-API-KEY"))
		},
		"in a broken answer": func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			conn, _, err := http.NewResponseController(w).Hijack()
			if err == nil {
				_, _ = fmt.Fprintf(conn, "HTTP/1.1 %s\r\n\r\n", r.Header.Get("DD-API-KEY"))
				_ = conn.Close()
			}
		},
		"in a status": func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			conn, _, err := http.NewResponseController(w).Hijack()
			if err == nil {
				_, _ = fmt.Fprintf(conn, "HTTP/1.1 500 %s\r\nContent-Length: 0\r\n\r\n", r.Header.Get("DD-API-KEY"))
				_ = conn.Close()
			}
		},
	} {
		err := newSink(t, serve(t, f), nil).Deliver(t.Context(), relaytest.Events(1))
		require.Error(t, err, name)
		assert.NotContains(t, fmt.Sprintf("%v %+v %#v", err, err, err), testKey, name)
	}
}

// A lost acknowledgement leads to a second delivery, never to none.
func TestLostAcknowledgement(t *testing.T) {
	t.Parallel()
	d := newIntake(t)
	s := newSink(t, d.URL, nil)
	d.Respond(func(n int, _ []string) *realservers.DatadogAnswer {
		if n == 0 {
			return &realservers.DatadogAnswer{Status: 502, Taken: true}
		}
		return nil
	})
	events := relaytest.Events(3)
	require.Error(t, s.Deliver(t.Context(), events))
	require.NoError(t, s.Deliver(t.Context(), events))
	assert.Equal(t, map[string]int{events[0].ID: 2, events[1].ID: 2, events[2].ID: 2}, d.IDs())
}

func TestNewErrors(t *testing.T) {
	t.Parallel()
	_, err := New(complete(t, config.Datadog{APIKey: secret.New(testKey), TLS: &config.TLSClient{CAFile: "missing.pem"}}), Options{})
	require.ErrorContains(t, err, "tls: ")
}
