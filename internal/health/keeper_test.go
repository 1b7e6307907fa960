package health

import (
	"context"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/ingest/received"
	"github.com/auditrelay/auditrelay/internal/workspace/management"
	"github.com/auditrelay/auditrelay/internal/workspace/streaming"
)

// scene is an environment under a keeper, in a bubble of synctest.
type scene struct {
	t      *testing.T
	book   *received.Book
	keeper *Keeper
	stop   func()
	rng    *rand.Rand

	mu       sync.Mutex // guards declared
	declared streaming.Health
	unread   bool // the API is not read any more
}

// environment streams to the relay.
func environment() config.Environment {
	return config.Environment{
		Project: live.Project, Environment: live.Environment, Stream: &config.Stream{Relay: &config.StreamRelay{Hostname: "relay.example.com"}},
	}
}

func newScene(t *testing.T, every time.Duration, change ...func(*Options)) *scene {
	t.Helper()
	s := &scene{t: t, rng: rand.New(rand.NewPCG(1, 2)), declared: streaming.Health{
		Project: live.Project, Environment: live.Environment, Status: management.StatusActive, DestinationType: management.GrafanaLoki,
	}}
	s.start(every, change...)
	return s
}

// start starts a relay again.
func (s *scene) start(every time.Duration, change ...func(*Options)) {
	s.t.Helper()
	s.book = received.New(time.Now)
	o := Options{Environments: []config.Environment{environment()}, Book: s.book, Declared: s.declare, Every: every}
	for _, f := range change {
		f(&o)
	}
	var err error
	s.keeper, err = New(o)
	require.NoError(s.t, err)
	ctx, cancel := context.WithCancel(s.t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); s.keeper.Run(ctx) }()
	s.stop = func() { cancel(); <-ended }
}

func (s *scene) declare() []streaming.Health {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.unread {
		s.declared.LastLook = time.Now()
	}
	return []streaming.Health{s.declared}
}

// set changes the API's word.
func (s *scene) set(change func(*streaming.Health)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(&s.declared)
}

// push is a push of events a second old.
func (s *scene) push(events int) { s.pushLate(events, time.Second) }

func (s *scene) pushLate(events int, late time.Duration) {
	var l received.Lateness
	for range events {
		l.Add(late)
	}
	s.book.Of(live).Took(received.Push{Events: int64(events), Newest: time.Now().Add(-late).UnixNano(), Lateness: &l})
}

// pass lets d pass with pushes of 10 events, on average one each gap(now); nil is none.
func (s *scene) pass(d time.Duration, gap func(time.Time) time.Duration, look func(Status)) (events int) {
	for end := time.Now().Add(d); time.Now().Before(end); {
		wait := time.Minute
		if gap != nil {
			wait = time.Duration(s.rng.ExpFloat64() * float64(gap(time.Now())))
		}
		time.Sleep(min(wait, time.Until(end)))
		if gap != nil && time.Now().Before(end) {
			s.push(10)
			events += 10
		}
		if look != nil {
			look(s.now())
		}
	}
	return events
}

func (s *scene) now() Status {
	synctest.Wait()
	return s.keeper.Status()[0]
}

// present is the gap that is not settled.
func (s *scene) present() Gap {
	s.keeper.mu.Lock()
	defer s.keeper.mu.Unlock()
	all := s.keeper.watches[0].unsettled()
	return all[len(all)-1].Gap
}

// office has a push a minute in office hours, and one in 20 minutes else.
func office(now time.Time) time.Duration {
	if day, hour := now.Weekday(), now.Hour(); day >= time.Monday && day <= time.Friday && hour >= 8 && hour < 18 {
		return time.Minute
	}
	return 20 * time.Minute
}

func steady(d time.Duration) func(time.Time) time.Duration {
	return func(time.Time) time.Duration { return d }
}

func TestACalmWeekAndAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t, time.Minute)
		defer s.stop()
		s.pass(21*24*time.Hour, office, nil) // it learns
		s.pass(7*24*time.Hour, office, func(now Status) {
			if now.State != Flowing {
				require.Equal(t, Flowing, now.State, "%s: %s", time.Now(), now.Reason)
			}
		})
		for time.Now().Weekday() != time.Wednesday || time.Now().Hour() != 10 {
			s.pass(time.Hour, office, nil)
		}
		began := time.Now()
		noticed := time.Duration(0)
		s.pass(2*time.Hour, nil, func(now Status) {
			if now.State == Silent && noticed == 0 {
				noticed = time.Since(began)
				assert.Contains(t, now.Reason, "the API declares the stream ACTIVE all the same")
			}
		})
		assert.Positive(t, noticed)
		assert.LessOrEqual(t, noticed, 90*time.Minute, "of a push a minute, as one such silence a year is no alarm")
		open := s.now().Gap
		require.NotNil(t, open)
		assert.Equal(t, ByRhythm, open.EstimatedBy)
		s.pass(10*time.Minute, office, nil)
		now := s.now()
		assert.Equal(t, Gapped, now.State, now.Reason)
		require.NotEmpty(t, now.Gaps)
		assert.InDelta(t, 1200, now.Gaps[len(now.Gaps)-1].EventsLost, 120, "1,200 events in two hours")
		assert.Nil(t, now.Gap)
		s.pass(25*time.Hour, office, nil)
		assert.Equal(t, Flowing, s.now().State)
	})
}

// A gap without anything learnt is estimated by the minutes before. Its late events
// are not lost.
func TestAGapOfARefusedStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t, time.Second)
		defer s.stop()
		s.pass(10*time.Minute, steady(time.Second), nil)
		assert.Equal(t, Flowing, s.now().State)
		page := s.book.Of(live)
		began := time.Now()
		for range 60 {
			page.Refused(received.Credential)
			time.Sleep(time.Second)
		}
		now := s.now()
		require.Equal(t, Refused, now.State, now.Reason)
		assert.Equal(t, began, now.Since)
		require.NotNil(t, now.Gap)
		assert.Equal(t, began, now.Gap.Begun)
		assert.Equal(t, int64(60), now.Gap.RefusedPushes)
		assert.InDelta(t, 600, now.Gap.EventsExpected, 60)
		assert.Equal(t, ByRecentRate, now.Gap.EstimatedBy)

		s.pushLate(200, 30*time.Second)
		s.pass(20*time.Second, steady(time.Second), nil)
		now = s.now()
		assert.Equal(t, Gapped, now.State, now.Reason)
		s.pass(time.Minute, steady(time.Second), nil)
		now = s.now()
		require.Len(t, now.Gaps, 1)
		assert.Equal(t, began, now.Gaps[0].Begun)
		assert.InDelta(t, 60, now.Gaps[0].Ended.Sub(began).Seconds(), 1)
		assert.InDelta(t, 200, now.Gaps[0].EventsLate, 20)
		assert.InDelta(t, 400, now.Gaps[0].EventsLost, 70)
		assert.Equal(t, Gapped, now.State, now.Reason)
	})
}

// The API's word counts at once, and the gap begins with the last arrival. A stale look
// counts no more.
func TestWhatIsDeclared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t, time.Second)
		defer s.stop()
		s.pass(5*time.Minute, steady(time.Second), nil)
		arrived := s.now().Observed.LastPush
		s.set(func(h *streaming.Health) { h.Differs, h.Destination = []string{"hostname"}, "evil.example.net" })
		time.Sleep(time.Minute)
		now := s.now()
		assert.Equal(t, Misdirected, now.State)
		require.NotNil(t, now.Gap)
		assert.Equal(t, arrived, now.Gap.Begun)
		s.set(func(h *streaming.Health) { h.Differs = nil })
		s.pass(2*time.Minute, steady(time.Second), nil)
		now = s.now()
		assert.Equal(t, Gapped, now.State)
		require.Len(t, now.Gaps, 1)
		assert.Equal(t, string(Misdirected), now.Gaps[0].Cause)
		assert.InDelta(t, 600, now.Gaps[0].EventsLost, 120)

		s.set(func(h *streaming.Health) { h.Status = management.StatusDisabled })
		time.Sleep(time.Minute)
		assert.Equal(t, Disabled, s.now().State)
		s.pass(time.Minute, steady(time.Second), nil)
		now = s.now()
		assert.Contains(t, now.Reason, "although the API declares the stream DISABLED")
		assert.False(t, now.Declared.Stale)
		s.mu.Lock()
		s.unread = true
		s.mu.Unlock()
		time.Sleep(4 * time.Minute)
		assert.True(t, s.now().Declared.Stale)
		time.Sleep(4 * time.Minute)
		now = s.now()
		assert.Equal(t, Unknown, now.State)
		assert.Contains(t, now.Reason, "the API was last read at")
	})
}

// A stream that goes on in spite of its declared status has lost nothing, though fewer
// events than usual came.
func TestPushesGoOnAfterDisabled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t, time.Second)
		defer s.stop()
		pushes := func(n int, every time.Duration) {
			for range n {
				time.Sleep(every)
				s.push(10)
			}
		}
		pushes(300, time.Second)
		s.set(func(h *streaming.Health) { h.Status = management.StatusDisabled })
		pushes(20, 1100*time.Millisecond)
		require.Equal(t, Disabled, s.now().State, "these may have been under way")
		pushes(20, 1100*time.Millisecond)
		now := s.now()
		assert.Equal(t, Flowing, now.State, now.Reason)
		assert.Contains(t, now.Reason, "although the API declares the stream DISABLED")
		pushes(100, 1100*time.Millisecond)
		assert.Empty(t, s.now().Gaps)
		assert.Equal(t, Flowing, s.now().State)
	})
}

// A quarter of an hour of ups and downs, each shorter than a moment, is no news.
func TestNothingFlaps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t, time.Second)
		defer s.stop()
		s.pass(time.Minute, steady(time.Second), nil)
		for range 300 {
			s.book.Of(live).Refused(received.Credential)
			time.Sleep(1500 * time.Millisecond)
			s.push(1)
			time.Sleep(1500 * time.Millisecond)
			require.Equal(t, Flowing, s.now().State)
		}
	})
}

// After a restart, the state waits for evidence, the gap goes on, and the recent
// rate is known.
func TestARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), FileName)
		file := func(o *Options) { o.File = path }
		s := newScene(t, time.Second, file)
		s.pass(10*time.Minute, steady(time.Second), nil)
		s.stop()
		time.Sleep(5 * time.Minute)
		s.start(time.Second, file)
		s.pass(10*time.Second, steady(time.Second), nil)
		assert.Equal(t, CauseRelayDown, s.present().Cause)
		assert.Empty(t, s.now().Gaps, "the provider may send it all again")
		s.pushLate(1000, 150*time.Second)
		s.pass(2*time.Minute, steady(time.Second), nil)
		now := s.now()
		require.Len(t, now.Gaps, 1)
		gap := now.Gaps[0]
		assert.Equal(t, CauseRelayDown, gap.Cause)
		assert.InDelta(t, 300, gap.Ended.Sub(gap.Begun).Seconds(), 2)
		assert.InDelta(t, 2000, gap.EventsLost, 300, "of 3,000, a thousand came late")
		assert.Equal(t, Gapped, now.State)

		s.book.Of(live).Refused(received.Credential)
		began := time.Now()
		time.Sleep(10 * time.Second)
		assert.Equal(t, Refused, s.now().State)
		s.stop()
		time.Sleep(time.Minute)
		s.start(time.Second, file)
		defer func() { s.stop() }()
		time.Sleep(10 * time.Second)
		now = s.now()
		assert.Equal(t, Refused, now.State, "no good push has come since: %s", now.Reason)
		require.NotNil(t, now.Gap)
		assert.True(t, began.Equal(now.Gap.Begun), "%s: the gap goes on", now.Gap.Begun)
		s.book.Of(live).Refused(received.Credential)
		time.Sleep(10 * time.Second)
		assert.True(t, began.Equal(s.now().Since), "%s: so does the run of refusals", s.now().Since)
	})
}

// A provider that sends again after the relay's downtime has lost nothing.
func TestARestartWithoutLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), FileName)
		file := func(o *Options) { o.File = path }
		s := newScene(t, time.Second, file)
		s.pass(10*time.Minute, steady(time.Second), nil)
		time.Sleep(time.Minute)
		s.stop()
		time.Sleep(time.Minute)
		s.start(time.Second, file)
		defer s.stop()
		time.Sleep(time.Second)
		down := s.present()
		assert.InDelta(t, 60, down.Ended.Sub(down.Begun).Seconds(), 1, "not from the last push: the relay has listened a minute longer")
		s.keeper.Noted(live, time.Now().Add(-51*time.Second)) // a push after the file was saved
		time.Sleep(4 * time.Second)
		gap := s.present()
		assert.InDelta(t, 50, gap.Ended.Sub(gap.Begun).Seconds(), 1)
		for late := 10 * time.Second; late < time.Minute; late += time.Second {
			s.pushLate(10, late)
		}
		s.pass(5*time.Minute, steady(time.Second), func(now Status) { require.Equal(t, Flowing, now.State, now.Reason) })
		assert.Empty(t, s.now().Gaps)
	})
}

// A sender that repeats its last push is silent: nothing new arrives.
func TestRepeatedPushesAreNotNew(t *testing.T) {
	t.Parallel()
	h, _ := newKept(t)
	h.pass(300, h.each20)
	h.pass(1800, func(e *received.Environment) {
		if h.now.Unix()%20 == 0 {
			e.Took(received.Push{Duplicates: 5, Newest: 1})
		}
	})
	now := h.status()
	assert.Equal(t, Silent, now.State, now.Reason)
	assert.Contains(t, now.Reason, "only with events that had come before")
	require.NotNil(t, now.Gap)
	assert.InDelta(t, 450, now.Gap.EventsExpected, 30)
	h.pass(100, h.each20)
	assert.Equal(t, Gapped, h.status().State, h.status().Reason)
}
