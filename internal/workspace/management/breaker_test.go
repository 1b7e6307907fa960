package management

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// service answers by path, without a network, so that time can be faked.
type service struct {
	mu         sync.Mutex
	answer     func(path string) int // 0: no answer
	retryAfter string                // in each answer but 200
	takes      time.Duration         // each answer
	asked      []string
}

func (s *service) RoundTrip(r *http.Request) (*http.Response, error) {
	time.Sleep(s.takes)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = append(s.asked, r.URL.Path)
	status := s.answer(r.URL.Path)
	if status == 0 {
		return nil, io.ErrUnexpectedEOF
	}
	body, header := `{"request_id":"r","error_type":"t"}`, http.Header{}
	if status == 200 {
		body = `{"request_id":"r","project":{},"policy":{},"country_codes":[]}`
	} else if s.retryAfter != "" {
		header.Set("Retry-After", s.retryAfter)
	}
	return &http.Response{StatusCode: status, Header: header, Request: r, Body: io.NopCloser(strings.NewReader(body))}, nil
}

func (s *service) always(status int) { s.by(func(string) int { return status }) }

func (s *service) by(answer func(path string) int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answer = answer
}

// count returns the requests since the last call.
func (s *service) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := len(s.asked)
	s.asked = nil
	return n
}

func (s *service) client(t *testing.T, change func(*Options)) *Client {
	t.Helper()
	o := options("https://example.com")
	o.HTTPClient = &http.Client{Transport: s}
	if change != nil {
		change(&o)
	}
	c, err := New(o)
	require.NoError(t, err)
	return c
}

// TestARevokedKeyIsAskedForSeldom: of a hundred callers a second only a few are sent.
func TestARevokedKeyIsAskedForSeldom(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &service{takes: 100 * time.Millisecond}
		s.always(200)
		c := s.client(t, nil)
		read := func() error { _, err := c.RBACPolicy(t.Context(), "p", "e"); return err }
		require.NoError(t, read())
		known, changed := c.Reach()
		assert.Equal(t, Reach{Known: true, Since: known.Since}, known)
		s.always(401)
		s.count()
		var all sync.WaitGroup
		for range 100 {
			all.Go(func() { assert.ErrorIs(t, read(), ErrUnreachable) })
		}
		all.Wait()
		assert.LessOrEqual(t, s.count(), 4*defaultAtOnce, "those under way as the first fails, as it asks, with its question, and as this ends")
		<-changed
		now, changed := c.Reach()
		assert.Equal(t, CauseUnauthorized, now.Cause)
		assert.Equal(t, "r", now.RequestID)

		for range 3600 {
			require.ErrorIs(t, read(), ErrUnreachable)
			time.Sleep(time.Second)
		}
		hour := s.count()
		assert.True(t, hour > 10 && hour < 25, "%d questions in an hour", hour)

		s.always(200)
		for read() != nil {
			time.Sleep(time.Second)
		}
		<-changed
		now, _ = c.Reach()
		assert.Empty(t, now.Cause)
		assert.LessOrEqual(t, time.Since(now.Since), time.Second)
	})
}

// TestOneFailingResourceStopsNoOther: the project can still be read.
func TestOneFailingResourceStopsNoOther(t *testing.T) {
	t.Parallel()
	for _, status := range []int{401, 403, 500, 0} {
		synctest.Test(t, func(t *testing.T) {
			s := &service{answer: func(path string) int {
				if strings.HasSuffix(path, "rbac_policy") {
					return status
				}
				return 200
			}}
			c := s.client(t, nil)
			_, err := c.RBACPolicy(t.Context(), "p", "e")
			require.Error(t, err)
			require.NotErrorIs(t, err, ErrUnreachable)
			_, err = c.SMSCountryCodes(t.Context(), "p", "e")
			require.NoError(t, err)
			now, _ := c.Reach()
			assert.Empty(t, now.Cause)
		})
	}
}

// TestOneFailingOperationStopsNoOther: projects cannot be read, and everything else can. Before,
// nothing was read or set any more, and status said that the API does not answer.
func TestOneFailingOperationStopsNoOther(t *testing.T) {
	t.Parallel()
	for _, status := range []int{403, 500, 0} {
		for _, known := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				s := &service{answer: func(path string) int {
					return map[bool]int{true: status, false: 200}[strings.HasSuffix(path, "/projects/p")]
				}}
				c := s.client(t, nil)
				read := func() error { _, err := c.SMSCountryCodes(t.Context(), "p", "e"); return err }
				if known { // a read has succeeded before
					require.NoError(t, read())
				}
				_, err := c.Project(t.Context(), "p")
				require.Error(t, err)
				assert.Equal(t, !known, errors.Is(err, ErrUnreachable))
				time.Sleep(probeFirst)
				require.NoError(t, read(), "another caller finds that the API can be used")
				now, _ := c.Reach()
				assert.Empty(t, now.Cause)
				_, err = c.Project(t.Context(), "p")
				require.Error(t, err)
				require.NotErrorIs(t, err, ErrUnreachable)
			})
		}
	}
}

// TestAProjectOfAnothersStopsNoOther: the key may not read one project, or it is broken. Before,
// every call to every other project was refused with it, for minutes.
func TestAProjectOfAnothersStopsNoOther(t *testing.T) {
	t.Parallel()
	for _, status := range []int{401, 403, 500, 0} {
		synctest.Test(t, func(t *testing.T) {
			s := &service{answer: func(path string) int {
				if strings.Contains(path, "/theirs") {
					return status
				}
				return 200
			}}
			c := s.client(t, func(o *Options) { o.Projects = []string{"theirs", "ours"} })
			for range 3 {
				_, err := c.RBACPolicy(t.Context(), "theirs", "e")
				require.Error(t, err)
				require.NotErrorIs(t, err, ErrUnreachable)
				_, err = c.SMSCountryCodes(t.Context(), "ours", "e")
				require.NoError(t, err)
			}
			s.always(401)
			_, err := c.SMSCountryCodes(t.Context(), "ours", "e")
			require.ErrorIs(t, err, ErrUnreachable, "no project can be read")
			_, err = c.RBACPolicy(t.Context(), "theirs", "e")
			require.ErrorIs(t, err, ErrUnreachable)
			s.by(func(path string) int { return map[bool]int{true: 401, false: 200}[strings.Contains(path, "/theirs")] })
			time.Sleep(probeMostRefused)
			_, err = c.RBACPolicy(t.Context(), "theirs", "e")
			require.NotErrorIs(t, err, ErrUnreachable, "its caller finds that another can be read")
			now, _ := c.Reach()
			assert.Empty(t, now.Cause)
		})
	}
}

// TestAnOutageMayEndInARefusal: each cause is a state of its own. A flapping API is not
// asked ever more often.
func TestAnOutageMayEndInARefusal(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &service{answer: func(string) int { return 0 }}
		c := s.client(t, nil)
		read := func(ctx context.Context) error { _, err := c.SMSCountryCodes(ctx, "p", "e"); return err }
		require.ErrorIs(t, read(t.Context()), ErrUnreachable)
		assert.Equal(t, 5+1, s.count())
		now, _ := c.Reach()
		assert.Equal(t, CauseOutage, now.Cause)
		s.always(401)
		time.Sleep(probeFirst)
		require.ErrorIs(t, read(t.Context()), ErrUnreachable)
		now, _ = c.Reach()
		assert.Equal(t, CauseUnauthorized, now.Cause)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		time.Sleep(2 * probeFirst)
		require.ErrorIs(t, read(ctx), context.Canceled, "a caller that gives up says nothing of the API")
		require.ErrorIs(t, read(t.Context()), ErrUnreachable)

		for range 5 {
			s.always(200)
			for read(t.Context()) != nil {
				time.Sleep(time.Second)
			}
			s.always(401)
			require.ErrorIs(t, read(t.Context()), ErrUnreachable)
		}
		assert.Greater(t, c.breaker.pause, 30*probeFirst)
	})
}

func TestQueue(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(10, 2)
		var order []int
		var mu sync.Mutex
		var all sync.WaitGroup
		start := time.Now()
		for i := range 60 {
			class := i % classes
			all.Go(func() {
				if !assert.NoError(t, q.start(t.Context(), class, false)) {
					return
				}
				mu.Lock()
				order = append(order, class)
				mu.Unlock()
				time.Sleep(time.Millisecond)
				q.done()
			})
		}
		all.Wait()
		assert.InDelta(t, 5, time.Since(start).Seconds(), 0.2, "a burst of one second's worth, then ten a second")
		early := 0 // patient requests while urgent ones waited
		for _, class := range order[10:40] {
			early += class
		}
		assert.InDelta(t, 30/(urgentInARow+1), early, 3)

		ctx, cancel := context.WithCancel(t.Context())
		require.NoError(t, q.start(t.Context(), urgent, false))
		require.NoError(t, q.start(t.Context(), urgent, false))
		time.AfterFunc(time.Second, cancel)
		require.ErrorIs(t, q.start(ctx, patient, false), context.Canceled, "no more than two at once")
		q.done()
		require.NoError(t, q.start(t.Context(), patient, false))
		q.done()
		q.done()
		assert.Equal(t, 2, q.free)
	})
}

// TestClientsShareTheirBudget: the settings give way to the streaming config.
func TestClientsShareTheirBudget(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &service{}
		s.always(200)
		c := s.client(t, func(o *Options) { o.RequestsPerSecond, o.AtOnce = 20, 1 })
		patient := c.GivingWay()
		var all sync.WaitGroup
		for range 100 {
			all.Go(func() { _, _ = patient.SMSCountryCodes(t.Context(), "p", "e") })
		}
		time.Sleep(time.Second)
		start := time.Now()
		_, err := c.Project(t.Context(), "p")
		require.NoError(t, err)
		assert.LessOrEqual(t, time.Since(start), 100*time.Millisecond, "it is not behind the others")
		all.Wait()
		assert.InDelta(t, 5, time.Since(start).Seconds()+1, 1)
	})
}

// Both series exist from the start, and follow the breaker.
func TestReachIsAMetric(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, registry := &service{}, prometheus.NewRegistry()
		s.always(200)
		c := s.client(t, func(o *Options) { o.Registerer = registry })
		read := func() { _, _ = c.RBACPolicy(t.Context(), "p", "e") }
		is := func(reachable, since string) {
			t.Helper()
			all, err := registry.Gather()
			require.NoError(t, err)
			got := map[string]string{}
			for _, f := range all {
				if g := f.GetMetric()[0].GetGauge(); g != nil {
					got[f.GetName()] = strconv.FormatFloat(g.GetValue(), 'f', -1, 64)
				}
			}
			assert.Equal(t, map[string]string{
				"auditrelay_workspace_reachable": reachable, "auditrelay_workspace_failing_since_timestamp_seconds": since,
				"auditrelay_workspace_held_until_timestamp_seconds": "NaN",
			}, got)
		}
		is("NaN", "NaN")
		read()
		is("1", "NaN")
		s.always(401)
		read()
		is("0", strconv.FormatInt(time.Now().Unix(), 10))
		s.always(200)
		time.Sleep(probeMostRefused)
		read()
		is("1", "NaN")
	})
}
