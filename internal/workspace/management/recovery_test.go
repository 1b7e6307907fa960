package management

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// hanging is a transport without answers while it hangs.
type hanging struct {
	mu    sync.Mutex
	hangs bool
	next  http.RoundTripper
}

func (h *hanging) set(hangs bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.hangs = hangs
}

func (h *hanging) RoundTrip(r *http.Request) (*http.Response, error) {
	h.mu.Lock()
	hangs := h.hangs
	h.mu.Unlock()
	if hangs {
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	return h.next.RoundTrip(r)
}

// probing runs Probe until the test's end.
func probing(t *testing.T, c *Client) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { c.Probe(ctx) })
	t.Cleanup(func() { stop(); running.Wait() })
}

// The end of an outage is noticed within 30 seconds, however long it was, and although
// nobody calls.
func TestAnOutagesEndIsNoticedWithinHalfAMinute(t *testing.T) {
	t.Parallel()
	for name, hangs := range map[string]bool{"500s": false, "no answer": true, "500s that ask to wait": false} {
		for _, lasts := range []time.Duration{5 * time.Second, 150 * time.Second, 6 * time.Hour} {
			t.Run(name+" for "+lasts.String(), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					s := &service{}
					if strings.HasSuffix(name, "wait") {
						s.retryAfter = "100"
					}
					s.always(500)
					h := &hanging{next: s, hangs: hangs}
					c := s.client(t, func(o *Options) {
						o.HTTPClient.Transport = h
						o.Projects = []string{"p", "q", "r"}
					})
					probing(t, c)
					fails := time.Now()
					_, err := c.SMSCountryCodes(t.Context(), "p", "e")
					require.ErrorIs(t, err, ErrUnreachable)
					require.Less(t, time.Since(fails), map[bool]time.Duration{false: 30 * time.Second, true: 65 * time.Second}[hangs], "and so is its beginning")
					for began := time.Now(); time.Since(began) < lasts; time.Sleep(500 * time.Millisecond) {
						now, _ := c.Reach()
						require.Equal(t, CauseOutage, now.Cause)
						if !now.NextTry.IsZero() {
							require.Less(t, time.Until(now.NextTry), 30*time.Second, "status shows the next try")
						}
					}
					s.always(200)
					h.set(false)
					good := time.Now()
					now, changed := c.Reach()
					if now.Cause != "" {
						<-changed
					}
					now, _ = c.Reach()
					assert.Empty(t, now.Cause)
					assert.Zero(t, now.NextTry)
					assert.Less(t, time.Since(good), 30*time.Second)
				})
			})
		}
	}
}

// A person who waits for somebody's call without an answer has the API asked, and is told.
func TestAPersonAsksForAnAPIThatHangs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &service{}
		s.always(200)
		h := &hanging{next: s}
		c := s.client(t, func(o *Options) { o.HTTPClient.Transport = h })
		require.NoError(t, c.Check(ForPerson(t.Context())))
		_, err := c.SMSCountryCodes(t.Context(), "p", "e")
		require.NoError(t, err)
		h.set(true)
		var all sync.WaitGroup
		all.Go(func() { _, err := c.SMSCountryCodes(t.Context(), "p", "e"); assert.ErrorIs(t, err, ErrUnreachable) })
		began := time.Now()
		require.ErrorIs(t, c.Check(ForPerson(t.Context())), ErrUnreachable)
		assert.LessOrEqual(t, time.Since(began), 2*probeAnswerWithin)
		all.Wait()
		assert.Less(t, time.Since(began), time.Minute)
		h.set(false)
		require.NoError(t, c.Check(ForPerson(t.Context())))
	})
}

// A person's call asks at once, and is never refused by an answer from before it.
func TestAPersonsCallAsksAtOnce(t *testing.T) {
	t.Parallel()
	for name, cause := range map[string]int{"outage": 500, "key": 401} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := &service{}
				s.always(cause)
				h := &hanging{next: s}
				c := s.client(t, func(o *Options) { o.HTTPClient.Transport = h })
				read := func(ctx context.Context) error { _, err := c.SMSCountryCodes(ctx, "p", "e"); return err }
				for range 8 { // the pauses have grown
					_ = read(t.Context())
					time.Sleep(probeMostRefused)
				}
				_ = read(t.Context())
				s.count()
				require.ErrorIs(t, read(t.Context()), ErrUnreachable)
				require.Zero(t, s.count(), "the relay's own call waits for the next try")
				require.ErrorIs(t, read(ForPerson(t.Context())), ErrUnreachable)
				require.Equal(t, map[int]int{500: 2, 401: 1}[cause], s.count(), "a person's asks: the project and, unless it is the key, itself")

				// A question under way hangs; the API is mended; the person comes meanwhile.
				h.set(true)
				var all sync.WaitGroup
				all.Go(func() { assert.NoError(t, read(AtOnce(t.Context())), "the second read of its question") })
				synctest.Wait()
				s.always(200)
				h.set(false)
				for range 20 {
					all.Go(func() { assert.NoError(t, read(ForPerson(t.Context()))) })
				}
				all.Wait()
				require.NoError(t, read(t.Context()))
			})
		})
	}
}

// A person who gives up leaves those who wait for the same question to ask themselves.
func TestAnInterruptedQuestionRefusesNobody(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &service{}
		s.always(500)
		h := &hanging{next: s}
		c := s.client(t, func(o *Options) { o.HTTPClient.Transport = h })
		read := func(ctx context.Context) error { _, err := c.SMSCountryCodes(ctx, "p", "e"); return err }
		require.Error(t, read(t.Context()))
		h.set(true)
		ctx, giveUp := context.WithCancel(ForPerson(t.Context()))
		var all sync.WaitGroup
		all.Go(func() { assert.ErrorIs(t, read(ctx), context.Canceled) })
		synctest.Wait()
		all.Go(func() { assert.NoError(t, read(ForPerson(t.Context()))) })
		synctest.Wait()
		h.set(false)
		s.always(200)
		giveUp()
		all.Wait()
	})
}

// throttler answers 429 with a Retry-After, until it is told to be well.
type throttler struct {
	mu    sync.Mutex
	after string
	times []time.Time
}

func (th *throttler) set(after string) {
	th.mu.Lock()
	defer th.mu.Unlock()
	th.after = after
}

func (th *throttler) sent() int {
	th.mu.Lock()
	defer th.mu.Unlock()
	return len(th.times)
}

func (th *throttler) RoundTrip(r *http.Request) (*http.Response, error) {
	th.mu.Lock()
	defer th.mu.Unlock()
	th.times = append(th.times, time.Now())
	resp := &http.Response{StatusCode: 200, Header: http.Header{}, Request: r}
	body := `{"request_id":"r","project":{},"policy":{},"country_codes":[]}`
	if th.after != "" {
		resp.StatusCode, body = 429, `{"request_id":"r","error_type":"too_many_requests"}`
		resp.Header.Set("Retry-After", th.after)
	}
	resp.Body = io.NopCloser(strings.NewReader(body))
	return resp, nil
}

// Before, each call took its own Retry-After to heart, and no other did: 75 requests in
// 100 seconds, and status said that the API answers.
func TestARetryAfterHoldsEveryCall(t *testing.T) {
	t.Parallel()
	for after, holds := range map[string]time.Duration{
		"3600": time.Hour, "600": 10 * time.Minute,
		"99999999": time.Hour, "Fri, 31 Dec 9999 23:59:59 GMT": time.Hour, // a lie does not blind it for longer
	} {
		t.Run(after, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				th, registry := &throttler{after: after}, prometheus.NewRegistry()
				o := options("https://example.com")
				o.HTTPClient, o.Registerer, o.AtOnce = &http.Client{Transport: th}, registry, 1
				c, err := New(o)
				require.NoError(t, err)
				probing(t, c)
				began := time.Now()
				var all sync.WaitGroup
				for range 20 { // those in the queue are not sent
					all.Go(func() {
						_, err := c.GivingWay().SMSCountryCodes(t.Context(), "p", "e")
						assert.ErrorIs(t, err, ErrUnreachable)
					})
				}
				all.Wait()
				require.Equal(t, 1, th.sent())
				require.Less(t, time.Since(began), 10*time.Second, "nobody waits in vain")
				now, _ := c.Reach()
				assert.Equal(t, CauseThrottled, now.Cause)
				assert.Equal(t, began.Add(holds), now.HeldUntil)
				assert.Equal(t, began.Add(holds), now.NextTry)
				assert.NoError(t, testutil.GatherAndCompare(registry, strings.NewReader(`# HELP auditrelay_workspace_reachable 1 where the management API can be used, 0 where it refuses the key, gives no answer, or asked to wait for long; NaN before the first call.
# TYPE auditrelay_workspace_reachable gauge
auditrelay_workspace_reachable 0
`), "auditrelay_workspace_reachable"))

				th.set("")
				for time.Since(began) < holds-time.Minute {
					for _, ctx := range []context.Context{t.Context(), AtOnce(t.Context()), ForPerson(t.Context())} {
						_, err = c.Project(ctx, "p")
						require.ErrorIs(t, err, ErrUnreachable)
					}
					time.Sleep(30 * time.Second)
				}
				require.Equal(t, 1, th.sent(), "nothing is sent, whoever asks")
				_, changed := c.Reach()
				<-changed
				assert.Equal(t, holds, time.Since(began))
				_, err = c.Project(t.Context(), "p")
				require.NoError(t, err)
				now, _ = c.Reach()
				assert.Empty(t, now.Cause)
				assert.Zero(t, now.HeldUntil)
			})
		})
	}
}

// A short wait is waited for, by all calls; a person is told instead.
func TestAShortRetryAfterDelaysEveryCall(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		th := &throttler{after: "60"}
		o := options("https://example.com")
		o.HTTPClient = &http.Client{Transport: th}
		c, err := New(o)
		require.NoError(t, err)
		began := time.Now()
		var all sync.WaitGroup
		all.Go(func() { _, err := c.Project(t.Context(), "p"); assert.NoError(t, err) })
		synctest.Wait()
		th.set("")
		for range 10 {
			all.Go(func() { _, err := c.SMSCountryCodes(t.Context(), "p", "e"); assert.NoError(t, err) })
		}
		synctest.Wait()
		require.Equal(t, 1, th.sent())
		_, err = c.Project(ForPerson(t.Context()), "p")
		require.ErrorIs(t, err, errHeld)
		require.ErrorContains(t, err, "until "+began.Add(time.Minute).UTC().Format(time.RFC3339))
		ctx, stop := context.WithTimeout(t.Context(), 30*time.Second)
		defer stop()
		_, err = c.Project(ctx, "p")
		require.ErrorIs(t, err, errNoTurn)
		now, _ := c.Reach()
		assert.Empty(t, now.Cause, "a short wait is no outage")
		assert.Equal(t, began.Add(time.Minute), now.HeldUntil)
		time.Sleep(55 * time.Second)
		_, err = c.Project(ForPerson(t.Context()), "p")
		require.NoError(t, err, "a person waits for some seconds")
		all.Wait()
		assert.True(t, th.times[1].Sub(began) >= time.Minute)
	})
}

// A call under way when another is asked to wait ends as it ends. Its success does not
// release the others.
func TestASuccessUnderWayReleasesNobody(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		th := &throttler{}
		h := &hanging{next: th}
		o := options("https://example.com")
		o.HTTPClient = &http.Client{Transport: h}
		c, err := New(o)
		require.NoError(t, err)
		h.set(true)
		var all sync.WaitGroup
		all.Go(func() { _, err := c.SMSCountryCodes(t.Context(), "p", "e"); assert.ErrorIs(t, err, ErrUnreachable) })
		synctest.Wait()
		h.set(false)
		th.set("3600")
		_, err = c.Project(t.Context(), "p")
		require.ErrorIs(t, err, ErrUnreachable)
		all.Wait() // the hanging one gives up, and is not repeated
		th.set("")
		require.Equal(t, 1, th.sent())
		now, _ := c.Reach()
		require.Equal(t, CauseThrottled, now.Cause)
	})
}
