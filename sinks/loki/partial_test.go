package loki

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/httpsink"
	"github.com/auditrelay/auditrelay/relay"
	"github.com/auditrelay/auditrelay/relay/relaytest"
)

// carry delivers as a pump does, and returns the events that are refused for good.
func carry(t testing.TB, s *Sink, events []relay.Event) map[string]error {
	t.Helper()
	refused := map[string]error{}
	for range 100 {
		err := s.Deliver(t.Context(), events)
		if err == nil {
			return refused
		}
		var partial *relay.PartialError
		if !errors.As(err, &partial) {
			require.False(t, relay.IsPermanent(err), "nobody is named: %v", err)
			continue
		}
		var again []relay.Event
		for _, f := range partial.Failures {
			if relay.IsPermanent(f.Err) {
				refused[events[f.Index].ID] = f.Err
			} else {
				again = append(again, events[f.Index])
			}
		}
		if events = again; len(events) == 0 {
			return refused
		}
	}
	t.Fatal("it does not end")
	return nil
}

// For any refusal and any text of Loki, each event arrives or is refused for a good reason.
func TestNothingIsLost(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*fake){
		"one stream":         func(*fake) {},
		"two names at most":  func(f *fake) { f.limits.named = 1 },
		"smaller limits":     func(f *fake) { f.limits.line, f.limits.metaBytes, f.limits.metaNo = 700, 450, 9 },
		"small requests":     func(f *fake) { f.limits.request = 20_000 },
		"less time for late": func(f *fake) { f.limits.window = 10 * time.Minute },
		"more time for late": func(f *fake) { f.limits.window = 5 * time.Hour },
		"in shards":          func(f *fake) { f.shards = 3 },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for seed := range uint64(20) {
				rng := rand.New(rand.NewPCG(seed, 1))
				f := newFake(t)
				change(f)
				f.now = relaytest.Events(1)[0].Time
				s := f.sink(t, nil)
				for batch := range 4 {
					events := unruly(rng, batch, f.now)
					refused := carry(t, s, events)
					requireSettled(t, f, events, refused)
				}
			}
		})
	}
}

// unruly makes events of every age and size.
func unruly(rng *rand.Rand, batch int, now time.Time) []relay.Event {
	events := relaytest.Events(60, relaytest.From(batch*1000), relaytest.Environments("a/1", "a/2", "b/1"))
	for i := range events {
		e := &events[i]
		switch rng.IntN(8) {
		case 0:
			e.Time = now.Add(-time.Duration(rng.IntN(200)) * time.Hour)
		case 1:
			e.Time = now.Add(-time.Duration(rng.IntN(180)) * time.Minute)
		case 2:
			e.Time = now.Add(time.Duration(rng.IntN(1200)) * time.Second)
		case 3:
			e.Body = []byte(strings.Repeat("x", 600+rng.IntN(300)))
		case 4:
			for range rng.IntN(6) {
				e.Labels = append(e.Labels, relay.Label{Name: fmt.Sprint("l", len(e.Labels)), Value: strings.Repeat("v", rng.IntN(60))})
			}
		case 5:
			e.Time = now.Add(-168*time.Hour + time.Duration(rng.IntN(4000)-2000)*time.Millisecond)
		}
	}
	return events
}

func requireSettled(t *testing.T, f *fake, events []relay.Event, refused map[string]error) {
	t.Helper()
	arrived := f.byID()
	for i := range events {
		e := &events[i]
		err := refused[e.ID]
		if err == nil {
			require.Positive(t, arrived[e.ID], "event %d of %v is lost", i, e.Time)
			continue
		}
		require.Zero(t, arrived[e.ID], "event %d arrived, and is refused: %v", i, err)
		old, young := e.Time.Before(f.now.Add(-f.limits.oldest)), e.Time.After(f.now.Add(f.limits.grace))
		switch text := err.Error(); {
		case strings.Contains(text, "too old"):
			require.True(t, old, text)
		case strings.Contains(text, "too new"):
			require.True(t, young, text)
		case strings.Contains(text, "max entry size"):
			require.Greater(t, len(e.Body), f.limits.line, text)
		case strings.Contains(text, "structured metadata"):
			require.Less(t, f.limits.metaNo, 128, text)
		case strings.Contains(text, "even in a stream for late events"):
			require.Less(t, f.limits.window, time.Hour, text)
		default:
			require.Failf(t, "an unknown reason", "%v: %s", e.Time, text)
		}
	}
}

// Events that are too late for Loki go to a stream with the label late, at once if this is
// known in advance.
func TestLate(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	s := f.sink(t, nil)
	now := relaytest.Events(1)[0].Time
	at := func(from int, ages ...time.Duration) []relay.Event {
		events := relaytest.Events(len(ages), relaytest.From(from))
		for i, age := range ages {
			events[i].Time = now.Add(-age)
		}
		return events
	}
	require.NoError(t, s.Deliver(t.Context(), at(0, 0)))
	require.NoError(t, s.Deliver(t.Context(), at(10, 3*time.Hour, time.Minute, 2*time.Hour)))
	late := map[string][]time.Duration{}
	gather := func() {
		clear(late)
		for _, e := range f.entries() {
			late[e.labels["late"]] = append(late[e.labels["late"]], now.Sub(e.Timestamp))
		}
	}
	gather()
	assert.Equal(t, map[string][]time.Duration{"": {0, time.Minute}, "true": {3 * time.Hour, 2 * time.Hour}}, late)
	// There is one push for the newest event, one for the events in time, and two for the late
	// ones, since the first of a stream goes alone. No push was sent in vain.
	assert.Len(t, f.pushes, 4)

	require.NoError(t, s.Deliver(t.Context(), at(20, 30*time.Hour, 28*time.Hour+30*time.Minute, 90*time.Minute)))
	gather()
	assert.ElementsMatch(t, []time.Duration{3 * time.Hour, 2 * time.Hour, 90 * time.Minute}, late["true"])
	delete(late, "true")
	delete(late, "")
	count := 0
	for label, ages := range late {
		for _, age := range ages {
			assert.Equal(t, now.Add(-age).UTC().Format("2006-01-02T15Z"), label)
			count++
		}
	}
	assert.Equal(t, 2, count)
}

// In a stream of two environments, one environment's event from the future makes nobody else's
// events late.
func TestAnEventFromTheFutureDelaysNobody(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.set(func() { f.limits.grace = 200 * 365 * 24 * time.Hour })
	s := f.sink(t, func(c *config.Loki) { c.Labels = map[string]string{"app": "idp"} })
	events := relaytest.Events(6)
	now := events[0].Received
	for i, ahead := range []time.Duration{100 * 365 * 24 * time.Hour, 0, 11 * time.Minute, 9 * time.Minute, -time.Minute, 99 * 365 * 24 * time.Hour} {
		events[i].Environment, events[i].Received, events[i].Time = fmt.Sprint("e", i), now, now.Add(ahead)
	}
	for range 2 {
		require.NoError(t, s.Deliver(t.Context(), events[:1]))
		require.NoError(t, s.Deliver(t.Context(), events))
	}
	got := map[string]string{}
	for _, e := range f.entries() {
		got[e.meta()["environment"]] = e.labels["late"]
	}
	require.Equal(t, map[string]string{
		"e0": "ahead", "e1": "", "e2": events[2].Time.UTC().Format("2006-01-02T15Z"), "e3": "", "e4": "", "e5": events[5].Time.UTC().Format("2006-01-02T15Z"),
	}, got)
}

// A sink that has just started does not know Loki's newest entry, and finds it out with one
// event.
func TestLateAfterAStart(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	require.NoError(t, f.sink(t, nil).Deliver(t.Context(), relaytest.Events(1)))
	s := f.sink(t, nil)
	f.set(func() { f.shards = 4 }) // from now on Loki does not mention some of the entries it leaves out
	events := relaytest.Events(30, relaytest.From(1))
	for i := range events {
		events[i].Time = events[i].Time.Add(-2 * time.Hour)
	}
	require.NoError(t, s.Deliver(t.Context(), events))
	assert.Len(t, f.byID(), 31)
	assert.Len(t, f.pushes, 4, "the oldest is refused, and goes alone to the late stream, and the rest follows it there")
}

// If something after a late event fails, the late event is tried again too.
func TestLateAndThenAnError(t *testing.T) {
	t.Parallel()
	for _, restart := range []bool{false, true} {
		f := newFake(t)
		s := f.sink(t, nil)
		require.NoError(t, s.Deliver(t.Context(), relaytest.Events(1)))
		if restart {
			s = f.sink(t, nil)
		}
		events := relaytest.Events(10, relaytest.From(1))
		for i := range 5 {
			events[i].Time = events[i].Time.Add(-2 * time.Hour)
		}
		f.refuseIDs(map[string]bool{events[7].ID: true}, "")
		whole := f.whole
		f.set(func() {
			f.whole = func(ids []string) *canned {
				if whole(ids) != nil {
					return refuse(http.StatusServiceUnavailable, "not now")
				}
				return nil
			}
		})
		err := s.Deliver(t.Context(), events)
		require.ErrorContains(t, err, "not now")
		f.set(func() { f.whole = nil })
		assert.Empty(t, carry(t, s, requireRetried(t, events, err)))
		assert.Len(t, f.byID(), 11)
	}
}

// requireRetried returns the events to try again.
func requireRetried(t *testing.T, events []relay.Event, err error) (again []relay.Event) {
	t.Helper()
	var partial *relay.PartialError
	if !errors.As(err, &partial) {
		return events
	}
	for _, f := range partial.Failures {
		require.False(t, relay.IsPermanent(f.Err))
		again = append(again, events[f.Index])
	}
	return again
}

// Even a stream for one hour can have newer entries, if Loki allows for less than an hour.
func TestTooLateForEveryStream(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.limits.window = time.Minute
	now := relaytest.Events(1)[0].Time.Truncate(time.Hour)
	for i, minute := range []int{300, 200} { // the newest, and the newest of the late ones
		events := relaytest.Events(1, relaytest.From(i))
		events[0].Time = now.Add(time.Duration(minute) * time.Minute)
		events[0].Received = events[0].Time
		require.NoError(t, f.sink(t, nil).Deliver(t.Context(), events))
	}
	s := f.sink(t, nil)
	events := relaytest.Events(2, relaytest.From(10))
	events[0].Time, events[1].Time = now.Add(30*time.Minute), now.Add(20*time.Minute)
	require.NoError(t, s.Deliver(t.Context(), events[:1]))
	failures := permanent(t, s.Deliver(t.Context(), events[1:]))
	assert.ErrorContains(t, failures[0], "even in a stream for late events of its hour")
}

// If the text is unknown, the sink finds the refused event by halving the push.
func TestUnknownRefusal(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	s := f.sink(t, nil)
	events := relaytest.Events(100)
	require.NoError(t, s.Deliver(t.Context(), events[:1]))
	bad := map[string]bool{events[17].ID: true, events[64].ID: true}
	f.refuseIDs(bad, "the moon is full; nothing can be done")
	failures := permanent(t, s.Deliver(t.Context(), events[1:]))
	require.Len(t, failures, 2)
	assert.EqualError(t, failures[16], "loki refuses it: the moon is full; nothing can be done")
	assert.Contains(t, failures, 63)
	assert.Len(t, f.byID(), 98)
}

// The sink ignores an answer that is too long to be read as a whole, even if it understands the
// beginning.
func TestRefusalCutOff(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	s := f.sink(t, nil)
	const before, after = "1 errors like: ", " has timestamp too old: x"
	text := before + strings.Repeat("z", httpsink.MaxAnswer-len(before)-len(after)) + after + "; 9 errors like: has timestamp too new: x"
	f.set(func() {
		f.whole = func(ids []string) *canned {
			if len(ids) == 1 {
				return nil
			}
			return refuse(http.StatusBadRequest, "%s", text)
		}
	})
	assert.Empty(t, carry(t, s, relaytest.Events(11)))
	assert.Len(t, f.byID(), 11)
}

// refuseIDs makes Loki refuse, as a whole, any push that contains one of the events.
func (f *fake) refuseIDs(bad map[string]bool, text string) {
	f.set(func() {
		f.whole = func(ids []string) *canned {
			for _, id := range ids {
				if bad[id] {
					return refuse(http.StatusBadRequest, "%s", text)
				}
			}
			return nil
		}
	})
}

// Pushes that are too large for Loki are made smaller, and stay smaller.
func TestTooLarge(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.limits.request = 60_000
	s := f.sink(t, nil)
	events := relaytest.Events(1000)
	events[500].Body = make([]byte, 100_000)
	failures := permanent(t, s.Deliver(t.Context(), events))
	require.Len(t, failures, 1)
	assert.ErrorContains(t, failures[500], "a push of this event alone")
	assert.Len(t, f.byID(), 999)
	assert.LessOrEqual(t, s.limit.Load(), int64(60_000))

	before := len(f.pushes)
	require.NoError(t, s.Deliver(t.Context(), relaytest.Events(200, relaytest.From(2000))))
	assert.Less(t, len(f.pushes)-before, 20)
}

// A rate limit that is smaller than a push would never let it pass.
func TestRateLimitNarrows(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.set(func() {
		f.whole = func(ids []string) *canned {
			if len(ids) > 20 {
				return refuse(http.StatusTooManyRequests, "ingestion rate limit exceeded for user fake (limit: 1 bytes/sec)")
			}
			return nil
		}
	})
	s := f.sink(t, nil)
	assert.Empty(t, carry(t, s, relaytest.Events(300)))
	assert.Len(t, f.byID(), 300)
}

// Once Loki is unreachable, the other pushes of a delivery are not sent.
func TestHalted(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	calls := 0
	f.answer = func(*http.Request) *canned {
		f.set(func() { calls++ })
		return &canned{status: http.StatusServiceUnavailable}
	}
	var names []string
	for i := range 100 {
		names = append(names, fmt.Sprintf("p%d/e", i))
	}
	s := f.sink(t, func(c *config.Loki) { c.LineBytes = 1 << 10 })
	events := relaytest.Events(400, relaytest.Environments(names...))
	events[7].Body = make([]byte, 2000)
	err := s.Deliver(t.Context(), events)
	var partial *relay.PartialError
	require.ErrorAs(t, err, &partial)
	require.Len(t, partial.Failures, 400)
	for i, failure := range partial.Failures {
		require.Equal(t, i, failure.Index)
		require.Equal(t, i == 7, relay.IsPermanent(failure.Err))
	}
	assert.LessOrEqual(t, calls, inFlight)
}
