package management

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// script answers each request with the next step of a list. The last step repeats. It
// needs no network, so a test can fake time.
type script struct {
	steps []step
	times []time.Time
}

type step struct {
	status     int
	retryAfter func() string
	clock      time.Duration // how far the server's is ahead, as it says
	err        error
	hang       bool
}

func (s *script) RoundTrip(r *http.Request) (*http.Response, error) {
	st := s.steps[min(len(s.times), len(s.steps)-1)]
	s.times = append(s.times, time.Now())
	if st.hang {
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	if st.err != nil {
		return nil, st.err
	}
	h := http.Header{}
	if st.clock != 0 {
		h.Set("Date", time.Now().Add(st.clock).UTC().Format(http.TimeFormat))
	}
	if st.retryAfter != nil {
		h.Set("Retry-After", st.retryAfter())
	}
	body := `{"error_type":"t"}`
	if st.status == 200 {
		body = `{"project":{"name":"x"}}`
	}
	return &http.Response{StatusCode: st.status, Header: h, Request: r, Body: io.NopCloser(strings.NewReader(body))}, nil
}

func (s *script) client(t *testing.T) *Client {
	t.Helper()
	o := options("https://example.com")
	o.HTTPClient = &http.Client{Transport: s}
	c, err := New(o)
	require.NoError(t, err)
	return c
}

func after(s string) func() string { return func() string { return s } }

func TestRetries(t *testing.T) {
	t.Parallel()
	read := func(ctx context.Context, c *Client) error { _, err := c.Project(ctx, "p"); return err }
	create := func(ctx context.Context, c *Client) error {
		_, err := c.CreateProject(ctx, "n", "")
		return err
	}
	remove := func(ctx context.Context, c *Client) error {
		_, err := c.Change(ctx, DeleteSecret, nil, "p", "e", "s")
		return err
	}
	date := func() string { return time.Now().Add(40 * time.Second).UTC().Format(http.TimeFormat) }
	ahead := func() string { return time.Now().Add(time.Hour + 40*time.Second).UTC().Format(http.TimeFormat) }
	ok := step{status: 200}
	for name, tc := range map[string]struct {
		steps    []step
		do       func(context.Context, *Client) error
		attempts int // with the question whether the API can be used at all
		fails    bool
		least    time.Duration // all waits together
		most     time.Duration
	}{
		"success":                    {steps: []step{ok}, do: read, attempts: 1},
		"500 then well":              {steps: []step{{status: 500}, ok}, do: read, attempts: 2, least: 250 * time.Millisecond, most: 500 * time.Millisecond},
		"503 of a delete":            {steps: []step{{status: 503}, ok}, do: remove, attempts: 2, least: 250 * time.Millisecond, most: 500 * time.Millisecond},
		"network then well":          {steps: []step{{err: io.ErrUnexpectedEOF}, ok}, do: read, attempts: 2, least: 250 * time.Millisecond, most: 500 * time.Millisecond},
		"hangs, then well":           {steps: []step{{hang: true}, ok}, do: read, attempts: 2 + 1, least: 30 * time.Second, most: 31 * time.Second},
		"429 with seconds":           {steps: []step{{status: 429, retryAfter: after("20")}, ok}, do: read, attempts: 2, least: 20 * time.Second, most: 21 * time.Second},
		"429 with a date":            {steps: []step{{status: 429, retryAfter: date}, ok}, do: read, attempts: 2, least: 39 * time.Second, most: 41 * time.Second},
		"429 with a date, clock on":  {steps: []step{{status: 429, retryAfter: ahead, clock: time.Hour}, ok}, do: read, attempts: 2, least: 39 * time.Second, most: 41 * time.Second},
		"429 with nonsense":          {steps: []step{{status: 429, retryAfter: after("soon")}, ok}, do: read, attempts: 2, most: time.Second},
		"429 beyond patience":        {steps: []step{{status: 429, retryAfter: after("3600")}}, do: read, attempts: 1, fails: true},
		"503 that asks for a moment": {steps: []step{{status: 503, retryAfter: after("5")}, ok}, do: read, attempts: 2, least: 5 * time.Second, most: 6 * time.Second},
		"503 that asks for long":     {steps: []step{{status: 503, retryAfter: after("100")}, ok}, do: read, attempts: 1 + 1, fails: true, most: time.Second},
		"never well":                 {steps: []step{{status: 500}}, do: read, attempts: 5 + 1, fails: true, least: 3750 * time.Millisecond, most: 7500 * time.Millisecond},
		"400 is final":               {steps: []step{{status: 400}}, do: read, attempts: 1, fails: true},
		"401 is final":               {steps: []step{{status: 401}}, do: read, attempts: 1 + 1, fails: true},
		"POST never: 500":            {steps: []step{{status: 500}, ok}, do: create, attempts: 1, fails: true},
		"POST never: 429":            {steps: []step{{status: 429}, ok}, do: create, attempts: 1, fails: true},
		"POST never: network":        {steps: []step{{err: io.ErrUnexpectedEOF}, ok}, do: create, attempts: 1, fails: true},
		"redirect without address":   {steps: []step{{status: 304}}, do: read, attempts: 1, fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := &script{steps: tc.steps}
				start := time.Now()
				err := tc.do(t.Context(), s.client(t))
				assert.Equal(t, tc.fails, err != nil, "%v", err)
				assert.Len(t, s.times, tc.attempts)
				took := time.Since(start)
				assert.True(t, took >= tc.least && took <= tc.most, "waited %v", took)
			})
		})
	}
}

// A refusal says that the call had no effect, unless an earlier attempt had no answer.
func TestARefusalAfterALostAnswerIsNone(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		steps   []step
		refused bool
	}{
		"at once":              {[]step{{status: 400}}, true},
		"after a busy API":     {[]step{{status: 429}, {status: 403}}, true},
		"after a lost answer":  {[]step{{err: io.ErrUnexpectedEOF}, {status: 429}, {status: 401}}, false},
		"after a failed proxy": {[]step{{status: 502}, {status: 404}}, false},
		"a failure":            {[]step{{status: 500}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				_, err := (&script{steps: tc.steps}).client(t).Change(t.Context(), DeleteSecret, nil, "p", "e", "s")
				var api *APIError
				require.ErrorAs(t, err, &api)
				assert.Equal(t, tc.refused, api.Refused())
			})
		})
	}
}

// A call of which nothing was sent had no effect. One whose first attempt was lost may have
// had one, although the next attempt was not sent.
func TestACallThatWasNotSentSaysSo(t *testing.T) {
	t.Parallel()
	dial := &net.OpError{Op: "dial", Err: errors.New("connection refused")}
	for name, tc := range map[string]struct {
		steps  []step
		secret string
		unsent bool
	}{
		"no such path":                 {[]step{{status: 200}}, "..", true},
		"no connection":                {[]step{{err: dial}}, "s", true},
		"no connection, then an error": {[]step{{err: dial}, {status: 500}}, "s", false},
		"an error, then no connection": {[]step{{err: io.ErrUnexpectedEOF}, {err: dial}}, "s", false},
		"lost, then asked to wait":     {[]step{{err: io.ErrUnexpectedEOF}, {status: 429, retryAfter: after("3600")}}, "s", false},
		"an error":                     {[]step{{status: 500}}, "s", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				_, err := (&script{steps: tc.steps}).client(t).Change(t.Context(), DeleteSecret, nil, "p", "e", tc.secret)
				require.Error(t, err)
				assert.Equal(t, tc.unsent, errors.Is(err, ErrNotSent), "%v", err)
			})
		})
	}
	synctest.Test(t, func(t *testing.T) {
		c := (&script{steps: []step{{status: 429, retryAfter: after("3600")}}}).client(t)
		_, err := c.Project(t.Context(), "p")
		require.NotErrorIs(t, err, ErrNotSent, "it was answered")
		_, err = c.Change(t.Context(), DeleteSecret, nil, "p", "e", "s")
		require.ErrorIs(t, err, ErrNotSent, "the API asked to wait")
	})
}

func TestRetryEndsWithTheContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &script{steps: []step{{status: 429, retryAfter: after("60")}}}
		c := s.client(t)

		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		start := time.Now()
		_, err := c.Project(ctx, "p")
		var api *APIError
		require.ErrorAs(t, err, &api)
		assert.Equal(t, time.Minute, api.RetryAfter)
		assert.Zero(t, time.Since(start), "a wait that the deadline cuts off is not begun")

		ctx, stop := context.WithCancel(t.Context())
		time.AfterFunc(5*time.Second, stop)
		_, err = c.Project(ctx, "p")
		require.ErrorIs(t, err, context.Canceled)
		require.ErrorIs(t, err, errHeld, "and what was waited for is told")
		assert.Equal(t, 5*time.Second, time.Since(start))
	})
}

func TestBackoffGrowsToItsCeiling(t *testing.T) {
	t.Parallel()
	for attempt := 1; attempt < 200; attempt++ {
		d := backoff(attempt)
		assert.True(t, d >= backoffFirst/2 && d <= backoffMost, "%d: %v", attempt, d)
	}
	assert.GreaterOrEqual(t, backoff(100), backoffMost/2)
}

func TestNetworkErrorsKeepTheirChain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		gone := errors.New("gone")
		_, err := (&script{steps: []step{{err: gone}}}).client(t).Project(t.Context(), "p")
		require.ErrorIs(t, err, gone)
	})
}
