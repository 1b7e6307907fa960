package routing

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/config/secret"
	"github.com/auditrelay/auditrelay/internal/routing/match"
	"github.com/auditrelay/auditrelay/relay"
	"github.com/auditrelay/auditrelay/relay/relaytest"
)

func route(t testing.TB, m *config.Match, r *config.Redact) *Route {
	t.Helper()
	metrics, err := NewMetrics(prometheus.NewRegistry())
	require.NoError(t, err)
	route, err := New(m, r, Options{Sink: "s", Logger: slog.New(slog.DiscardHandler), Metrics: metrics})
	require.NoError(t, err)
	return route
}

// numbered are events "e0", "e1" and so on, with bodies {"n":0} and so on.
func numbered(n int) []relay.Event {
	events := make([]relay.Event, n)
	for i := range events {
		events[i] = relay.Event{
			ID: fmt.Sprintf("e%d", i), Source: "/projects/p/environments/live", Type: "event_log.Login",
			Project: "p", Environment: "live", Body: fmt.Appendf(nil, `{"n":%d,"email":"a%d@example.com"}`, i, i),
		}
	}
	return events
}

func ids(events []relay.Event) string {
	var all []string
	for i := range events {
		all = append(all, events[i].ID)
	}
	return strings.Join(all, " ")
}

func TestNames(t *testing.T) {
	t.Parallel()
	events := []relay.Event{
		{ID: "a", Type: "event_log.Login", Project: "shop", Environment: "live"},
		{ID: "b", Type: "event_log.Logout", Project: "shop", Environment: "test"},
		{ID: "c", Type: "settings.changed", Project: "shop"},
		{ID: "d", Type: "event_log.Login", Project: "blog", Environment: "live-eu"},
	}
	for _, c := range []struct {
		match config.Match
		want  string
	}{
		{config.Match{Types: []string{"event_log.Login"}}, "a d"},
		{config.Match{Types: []string{"event_log.*"}}, "a b d"},
		{config.Match{Types: []string{"settings.*", "*.Logout"}}, "b c"},
		{config.Match{Projects: []string{"shop"}, Environments: []string{"live*"}}, "a"},
		{config.Match{Environments: []string{"live*", ""}}, "a c d"},
		{config.Match{Environments: []string{"*"}}, "a b c d"},
		{config.Match{Types: []string{"event_log.*"}, CEL: `environment != "test"`}, "a d"},
		{config.Match{Types: []string{"nothing"}}, ""},
	} {
		var inner relaytest.Sink
		require.NoError(t, route(t, &c.match, nil).Wrap(&inner).Deliver(t.Context(), events))
		assert.Equal(t, c.want, ids(inner.Arrived()), "%+v", c.match)
		if c.want == "" {
			assert.Empty(t, inner.Calls(), "the sink need not know of nothing")
		}
	}
}

func TestEveryNameOfAnExpressionHasItsValue(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	event := relay.Event{
		ID: "i", Source: "s", Type: "t", Subject: "u", Project: "p", Environment: "e", Time: at, Received: at.Add(time.Hour),
		Labels: []relay.Label{{Name: "l", Value: "1"}, {Name: "m", Value: "2"}, {Name: "l", Value: "3"}},
		Body:   []byte(`{"b":7}`),
	}
	v := &view{}
	v.reset(&event)
	for _, name := range match.Names() {
		value, ok := v.ResolveName(name)
		assert.True(t, ok, name)
		assert.NotNil(t, value, name)
	}
	_, ok := v.ResolveName("nothing")
	assert.False(t, ok)
	var inner relaytest.Sink
	all := `id == "i" && source == "s" && type == "t" && subject == "u" && project == "p" && environment == "e" &&
		time == timestamp("2026-03-01T00:00:00Z") && received > time && labels == {"l": ["1", "3"], "m": ["2"]} &&
		body.b == 7 && raw == "{\"b\":7}"`
	require.NoError(t, route(t, &config.Match{CEL: "!(" + all + ")"}, nil).Wrap(&inner).Deliver(t.Context(), []relay.Event{event}))
	assert.Empty(t, inner.Arrived())
	require.NoError(t, route(t, &config.Match{CEL: all}, nil).Wrap(&inner).Deliver(t.Context(), []relay.Event{event}))
	assert.Len(t, inner.Arrived(), 1)
}

func TestARouteWithoutRulesIsNone(t *testing.T) {
	t.Parallel()
	var inner relaytest.Sink
	assert.Same(t, &inner, route(t, nil, nil).Wrap(&inner))
	assert.Same(t, &inner, route(t, &config.Match{}, &config.Redact{}).Wrap(&inner))
}

func TestNewErrors(t *testing.T) {
	t.Parallel()
	_, err := New(&config.Match{CEL: "nope"}, nil, Options{})
	require.ErrorContains(t, err, "match.cel: column 1: undeclared reference to 'nope'")
	_, err = New(nil, &config.Redact{Remove: []string{"nope"}}, Options{})
	require.ErrorContains(t, err, `redact: pointer "nope": column 1:`)
	_, err = New(nil, &config.Redact{Hash: []string{"/a"}}, Options{})
	require.ErrorContains(t, err, "redact: a key is required")
}

// The sink sees redacted bodies. Others that share the events, and the dead letters, see them
// as they came.
func TestThroughAPump(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		events := numbered(10)
		events[4].Body = []byte("a4@example.com wrote plain text")
		before := slices.Clone(events)
		bodies := make([]string, len(events))
		for i := range events {
			bodies[i] = string(events[i].Body)
		}
		refuse := relay.Permanent(errors.New("too spicy"))
		for name, respond := range map[string]func(int, []relay.Event) relaytest.Outcome{
			"named":  relaytest.Naming(refuse, "e6", "e9"),
			"halved": relaytest.Refusing("e6", "e9"),
			"after an outage": func(call int, events []relay.Event) relaytest.Outcome {
				if call < 3 {
					return relaytest.Outcome{Err: errors.New("down")}
				}
				return relaytest.Naming(refuse, "e6", "e9")(call, events)
			},
		} {
			inner := &relaytest.Sink{Respond: respond}
			var dead relaytest.DeadLetters
			source := relaytest.NewSource(events)
			source.Close()
			r := route(t, &config.Match{CEL: `body.n % 2 == 0 || body.n > 6`}, &config.Redact{Remove: []string{"/email"}})
			// e4 has no n, so it is in doubt, and chosen.
			pump := relay.Pump{Name: "s", Source: source, Sink: r.Wrap(inner), DeadLetters: &dead, Logger: slog.New(slog.DiscardHandler)}
			require.ErrorIs(t, pump.Run(t.Context()), relaytest.ErrClosed)

			assert.Equal(t, relay.Position(10), source.Acked(), name)
			assert.Equal(t, "e0 e2 e7 e8", ids(inner.Arrived()), name)
			for _, e := range inner.Arrived() {
				assert.NotContains(t, string(e.Body), "example.com", name)
			}
			for _, call := range inner.Calls() {
				assert.NotContains(t, ids(call), "e4", "%s: it must not leave, redacted or not", name)
			}
			var letters []string
			for _, r := range dead.Kept("s") {
				i := slices.IndexFunc(events, func(e relay.Event) bool { return e.ID == r.Event.ID })
				assert.Equal(t, bodies[i], string(r.Event.Body), "%s: a dead letter is the event as it came", name)
				want := "too spicy"
				if r.Event.ID == "e4" {
					want = "its body cannot be redacted, and so is withheld: invalid JSON"
				} else if name == "halved" {
					want = "an event is refused"
				}
				assert.Contains(t, r.Reason, want, name)
				assert.NotContains(t, r.Reason, "example.com")
				letters = append(letters, r.Event.ID)
			}
			slices.Sort(letters)
			assert.Equal(t, []string{"e4", "e6", "e9"}, letters, name)
			assert.Equal(t, before, events, "%s: events are shared", name)
			for i := range events {
				assert.Equal(t, bodies[i], string(events[i].Body), name)
			}
			assert.InDelta(t, 3, testutil.ToFloat64(r.counts.unmatched), 0, "%s: e1, e3 and e5, once each", name)
			assert.InDelta(t, 1, testutil.ToFloat64(r.counts.doubtful), 0, "%s: e4, once", name)
		}
	})
}

func TestErrorsKeepTheirClass(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err               error
		permanent, misled bool
	}{
		{err: errors.New("down")},
		{err: relay.RetryAfter(errors.New("busy"), time.Minute)},
		{err: relay.Permanent(errors.New("refused")), permanent: true},
		{err: fmt.Errorf("x: %w", &relay.PartialError{Failures: []relay.Failure{{Index: 5, Err: relay.Permanent(errors.New("whose?"))}}}), misled: true},
		{err: &relay.PartialError{Failures: []relay.Failure{{Index: 1, Err: errors.New("a")}, {Index: 0, Err: errors.New("b")}}}, misled: true},
		{err: &relay.PartialError{Failures: []relay.Failure{{Index: 0}}}, misled: true},
		{err: &relay.PartialError{}, misled: true},
	} {
		inner := &relaytest.Sink{Respond: relaytest.Script(relaytest.Outcome{Err: c.err})}
		r := route(t, &config.Match{CEL: `body.n > 1`}, nil)
		err := r.Wrap(inner).Deliver(t.Context(), numbered(4))
		require.Error(t, err)
		assert.Equal(t, c.permanent, relay.IsPermanent(err), "%v", c.err)
		var partial *relay.PartialError
		assert.False(t, errors.As(err, &partial), "%v", c.err)
		if !c.misled {
			assert.Equal(t, c.err, err)
		}
		assert.Zero(t, testutil.ToFloat64(r.counts.unmatched), "it is tried again, and counted then")
	}
}

func TestIndexesAreTheCallers(t *testing.T) {
	t.Parallel()
	down := errors.New("not now")
	inner := &relaytest.Sink{Respond: relaytest.Naming(down, "e2", "e5", "e7")}
	events := numbered(8)
	events[3].Body, events[6].Body = []byte("x"), []byte("y")
	err := route(t, &config.Match{CEL: `id != "e1" && id != "e4"`}, &config.Redact{Remove: []string{"/email"}}).Wrap(inner).Deliver(t.Context(), events)
	var partial *relay.PartialError
	require.ErrorAs(t, err, &partial)
	got := map[int]bool{}
	last := -1
	for _, f := range partial.Failures {
		assert.Greater(t, f.Index, last)
		last = f.Index
		got[f.Index] = relay.IsPermanent(f.Err)
	}
	assert.Equal(t, map[int]bool{2: false, 3: true, 5: false, 6: true, 7: false}, got)
	assert.Equal(t, "e0", ids(inner.Arrived()))

	// A single refused event is known.
	inner = &relaytest.Sink{Respond: relaytest.Refusing("e5")}
	err = route(t, &config.Match{CEL: `id == "e5"`}, nil).Wrap(inner).Deliver(t.Context(), events)
	require.ErrorAs(t, err, &partial)
	require.Len(t, partial.Failures, 1)
	assert.Equal(t, 5, partial.Failures[0].Index)
	assert.True(t, relay.IsPermanent(partial.Failures[0].Err))
}

// Some sinks send labels, so they are redacted like members of the body.
func TestLabelsAreRedacted(t *testing.T) {
	t.Parallel()
	given := []relay.Label{
		{Name: "host", Value: "h"},
		{Name: "user.email", Value: "a@example.com"},
		{Name: "User", Value: `{"email":"a@example.com"}`},
		{Name: "session", Value: "s"},
		{Name: "user_id", Value: "7"},
	}
	events := numbered(3)
	for i := range events {
		events[i].Labels = given
	}
	events[2].Labels = given[:1]
	before := slices.Clone(given)
	var inner relaytest.Sink
	r := route(t, nil, &config.Redact{
		Remove: []string{"/user/email"}, Hash: []string{"/user/id"}, HashKey: secret.New("0123456789abcdef"), Labels: []string{"SESS*"},
	})
	require.NoError(t, r.Wrap(&inner).Deliver(t.Context(), events))
	for i, e := range inner.Arrived() {
		require.Equal(t, relay.Label{Name: "host", Value: "h"}, e.Labels[0])
		if i == 2 {
			require.Len(t, e.Labels, 1)
			continue
		}
		require.Len(t, e.Labels, 2)
		assert.Equal(t, "user_id", e.Labels[1].Name)
		assert.True(t, strings.HasPrefix(e.Labels[1].Value, "hmac-sha256:"), e.Labels[1].Value)
	}
	assert.Equal(t, before, given, "events are shared")
}

// The hashes in an entry of the trail confirm no guess at what a sink's redaction took from it: its
// record is salted, and the salt goes with what is taken.
func TestARedactedEntryHasNoSalt(t *testing.T) {
	t.Parallel()
	events := numbered(4)
	for i, body := range []string{
		`{"detail":{"person":{"host":"h","user":"ada"}},"salt":"S","trail":{"leaf":"x"},"type":"action.ended"}`,
		`{"detail":{"host":"h"},"salt":"S","trail":{"leaf":"x"},"type":"action.ended"}`,
		`{"omitted":{"before_sha256":"B","detail_sha256":"D","record_sha256":"R"},"salt":"S","type":"action.ended"}`,
		`{"detail":{"person":{"user":"ada"}},"salt":"S"}`,
	} {
		events[i].Body = []byte(body)
		if i < 3 {
			events[i].Type, events[i].Source = "action.ended", relay.TrailSource
		}
	}
	var inner relaytest.Sink
	r := route(t, nil, &config.Redact{Remove: []string{"/detail/person/user"}})
	require.NoError(t, r.Wrap(&inner).Deliver(t.Context(), events))
	var got []string
	for _, e := range inner.Arrived() {
		got = append(got, string(e.Body))
	}
	assert.Equal(t, []string{
		`{"detail":{"person":{"host":"h"}},"trail":{"leaf":"x"},"type":"action.ended"}`,
		`{"detail":{"host":"h"},"salt":"S","trail":{"leaf":"x"},"type":"action.ended"}`,
		`{"omitted":{"record_sha256":"R"},"type":"action.ended"}`,
		`{"detail":{"person":{}},"salt":"S"}`,
	}, got)
}

// checkable is a sink with a check.
type checkable struct{ relaytest.Sink }

func (*checkable) Check(_ context.Context, report func(what, found string)) error {
	report("broker", "is there")
	return errors.New("but full")
}

func TestCheckAndClose(t *testing.T) {
	t.Parallel()
	found := map[string]string{}
	report := func(what, text string) { found[what] = text }
	r := route(t, &config.Match{CEL: `id != ""`}, nil)
	var plain relaytest.Sink
	sink := r.Wrap(&plain)
	require.NoError(t, sink.(relay.Checker).Check(t.Context(), report))
	assert.Equal(t, map[string]string{"match.cel": `compiles: id != ""`}, found)
	require.NoError(t, sink.Close())
	assert.True(t, plain.Closed())
	require.EqualError(t, r.Wrap(&checkable{}).(relay.Checker).Check(t.Context(), report), "but full")
	assert.Equal(t, "is there", found["broker"])
}

func TestMetricsOfSeveralSinksAndReplays(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	for _, name := range []string{"a", "b", "a"} {
		m, err := NewMetrics(reg)
		require.NoError(t, err)
		m.of(name).add(choice{unmatched: 2, doubtful: 1})
	}
	assert.NoError(t, testutil.GatherAndCompare(reg, strings.NewReader(`
# HELP auditrelay_sink_unmatched_events_total Events left out by the sink's match; they count as delivered, too.
# TYPE auditrelay_sink_unmatched_events_total counter
auditrelay_sink_unmatched_events_total{sink="a"} 4
auditrelay_sink_unmatched_events_total{sink="b"} 2
`), "auditrelay_sink_unmatched_events_total"))
}

// Deliveries may overlap: see config.Sink.Parallel, and replays to a file.
func TestDeliveriesAtOnce(t *testing.T) {
	t.Parallel()
	var inner relaytest.Sink
	sink := route(t, &config.Match{CEL: `body.n % 2 == 0`}, &config.Redact{Hash: []string{"/email"}, HashKey: secret.New("0123456789abcdef")}).Wrap(&inner)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() { assert.NoError(t, sink.Deliver(t.Context(), numbered(200))) })
	}
	all.Wait()
	assert.Len(t, inner.Arrived(), 400)
}

// The route keeps the contract of the sink that it wraps.
func TestContract(t *testing.T) {
	t.Parallel()
	relaytest.Run(t, relaytest.Harness{New: func(t *testing.T) relaytest.Destination {
		var down, stalled atomic.Bool
		var refused []string
		inner := &relaytest.Sink{Respond: func(call int, events []relay.Event) relaytest.Outcome {
			switch {
			case stalled.Load():
				return relaytest.Outcome{Hang: true}
			case down.Load():
				return relaytest.Outcome{Err: errors.New("down")}
			}
			return relaytest.Refusing(refused...)(call, events)
		}}
		return relaytest.Destination{
			Sink:    route(t, &config.Match{CEL: `body.event_id.size() > 0 && type != ""`}, nil).Wrap(inner),
			Arrived: func() []relaytest.Arrival { return arrivals(inner.Arrived()) },
			Down:    func() { down.Store(true) },
			Up:      func() { down.Store(false) },
			Stall:   func() { stalled.Store(true) },
			Refuse:  func(e *relay.Event) { refused = append(refused, e.ID) },
		}
	}})
}

func arrivals(events []relay.Event) []relaytest.Arrival {
	out := make([]relaytest.Arrival, len(events))
	for i := range events {
		e := &events[i]
		out[i] = relaytest.Arrival{ID: e.ID, Body: e.Body, Attributes: map[string]string{"datacontenttype": e.ContentType}}
		for name, value := range e.Attributes {
			out[i].Attributes[name] = value
		}
	}
	return out
}

// A sink whose position passes over everything before it gets nothing of a delivery in which
// another event is withheld, before that one is settled.
func TestWithheldEventsGoFirst(t *testing.T) {
	t.Parallel()
	events := numbered(4)
	events[2].Body = []byte("no JSON")
	r, err := New(&config.Match{Types: []string{"*"}}, &config.Redact{Remove: []string{"/email"}}, Options{Logger: slog.New(slog.DiscardHandler), InOrder: true})
	require.NoError(t, err)
	inner := &relaytest.Sink{}
	err = r.Wrap(inner).Deliver(t.Context(), events)
	var partial *relay.PartialError
	require.ErrorAs(t, err, &partial)
	require.Empty(t, inner.Calls())
	require.Len(t, partial.Failures, 4)
	for i, f := range partial.Failures {
		assert.Equal(t, i, f.Index)
		assert.Equal(t, i == 2, relay.IsPermanent(f.Err))
		assert.Equal(t, i != 2, errors.Is(f.Err, relay.ErrUntried))
	}

	var dead relaytest.DeadLetters
	source := relaytest.NewSource(events)
	source.Close()
	pump := relay.Pump{Name: "s", Source: source, Sink: r.Wrap(inner), DeadLetters: &dead, Logger: slog.New(slog.DiscardHandler)}
	require.ErrorIs(t, pump.Run(t.Context()), relaytest.ErrClosed)
	assert.Len(t, dead.Kept("s"), 1)
	assert.Len(t, inner.Calls(), 1)
	assert.Equal(t, "e0 e1 e3", ids(inner.Arrived()))
}
