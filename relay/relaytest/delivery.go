package relaytest

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/relay"
)

func testAcknowledged(t *testing.T, s *subject) {
	one, many := Events(1), Events(5000, From(1))
	s.mustDeliver(t, one)
	s.requireArrived(t, one)
	s.mustDeliver(t, many)
	s.requireArrived(t, append(one, many...))
}

func testOrder(t *testing.T, s *subject) {
	all := Events(600, Environments("acme/production", "acme/staging", "globex/production"))
	for from := 0; from < len(all); {
		n := min(1+from%97, len(all)-from)
		s.mustDeliver(t, all[from:from+n])
		from += n
	}
	s.requireArrived(t, all)
}

func testOddEvents(t *testing.T, s *subject) {
	events := oddEvents(s.harness.MaxBody)
	s.mustDeliver(t, events)
	s.requireArrived(t, events)
}

// oddEvents are events that a careless binding would change, refuse or split.
func oddEvents(maxBody int) []relay.Event {
	binary := make([]byte, 4096)
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range binary {
		binary[i] = byte(rng.Uint32())
	}
	bodies := map[string][]byte{
		"empty":                        {},
		"one byte":                     {0},
		"a newline":                    []byte("\n"),
		"newlines within":              []byte("{\n  \"a\": 1,\r\n  \"b\": 2\n}\n"),
		"spaces around":                []byte("  {\"a\":1}  "),
		"numbers and escapes kept":     []byte(`{"z":1.0e+2,"a":"\u0041\/","a":12345678901234567890123}`),
		"a json string":                []byte(`"text"`),
		"null":                         []byte("null"),
		"not json":                     []byte(`level=info msg="not JSON" {`),
		"two json values":              []byte(`{"a":1} {"b":2}`),
		"invalid utf-8":                []byte("{\"a\":\"\xff\xfe\"}"),
		"unicode":                      []byte(`{"name":"Zoë 👩🏽‍💻 日本語 ` + "\u2028\u2029" + `"}`),
		"html":                         []byte(`{"a":"<script>&amp;</script>"}`),
		"random bytes":                 binary,
		"protocol text":                []byte("PUB x 3\r\nfoo\r\nNATS/1.0\r\n\r\n"),
		"as large as an event may get": Events(1, BodyBytes(maxBody))[0].Body,
	}
	subjects := []string{
		"", "a", "user-live-1", "with space", "tab\tand\nline\r\nbreaks", "per%cent %41", `quote " back \ slash`,
		"Zoë 日本 👩🏽‍💻", "dots.and.*.and.>", " edges ", "a/b?c=d&e#f", "comma,semi;colon:", "\x7f",
	}
	var events []relay.Event
	for _, name := range slices.Sorted(maps.Keys(bodies)) {
		e := Events(1, From(len(events)))[0]
		e.ID, e.Body = "odd body: "+name, bodies[name]
		events = append(events, e)
	}
	for i, subject := range subjects {
		e := Events(1, From(len(events)))[0]
		e.ID, e.Subject = fmt.Sprintf("odd-subject-%d", i), subject
		events = append(events, e)
	}
	return append(events, oddEnvelopes()...)
}

// oddEnvelopes are events that are odd in attributes other than the subject.
func oddEnvelopes() []relay.Event {
	events := Events(7, From(1000))
	events[0].ContentType = "text/plain; charset=utf-8"
	events[1].ContentType, events[1].Body = "application/octet-stream", []byte{0xde, 0xad, 0xbe, 0xef}
	events[2].Environment, events[2].Source, events[2].Type = "", relay.TrailSource, "settings.changed"
	events[3].Type = "event_log.a strange.type.*.>"
	events[4].Time = time.Date(1970, 1, 1, 0, 0, 0, 0, time.UTC)
	events[5].Time = time.Date(2026, 11, 3, 23, 59, 59, 999_999_999, time.FixedZone("", -8*3600))
	events[6].Labels = nil
	return events
}

func testRedelivery(t *testing.T, s *subject) {
	events := Events(50)
	s.mustDeliver(t, events)
	s.mustDeliver(t, events)
	byID := map[string]*relay.Event{}
	for i := range events {
		byID[events[i].ID] = &events[i]
	}
	seen := map[string]int{}
	for _, a := range s.Arrived() {
		require.Contains(t, byID, a.ID, "an id that was never given")
		s.requireSame(t, byID[a.ID], a)
		seen[a.ID]++
	}
	require.Len(t, seen, len(events))
	for id, n := range seen {
		require.LessOrEqual(t, n, 2, "arrivals of %s", id)
	}
}

func testCancelled(t *testing.T, s *subject) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	within(t, patience, "Deliver with a cancelled context", func() {
		require.Error(t, s.deliver(ctx, t, Events(10)))
	})
	marker := Events(1, From(10))
	s.mustDeliver(t, marker)
	s.requireArrived(t, marker)
}

// testCancelledOnTheWay cancels deliveries at several moments. Events sent before that may have
// arrived, but nothing more may arrive after Deliver has returned.
func testCancelledOnTheWay(t *testing.T, s *subject) {
	for i, after := range []time.Duration{50 * time.Microsecond, 500 * time.Microsecond, 2 * time.Millisecond, 5 * time.Millisecond} {
		ctx, cancel := context.WithTimeout(t.Context(), after)
		_ = s.deliver(ctx, t, Events(5000, From(i*5000)))
		cancel()
	}
	s.deliverUntilDone(t, Events(1, From(100_000)))
	settled := len(s.Arrived())
	s.mustDeliver(t, Events(1, From(100_001)))
	require.Len(t, s.Arrived(), settled+1, "events of a cancelled delivery came late")
}

func testClosed(t *testing.T, s *subject) {
	events := Events(10)
	s.mustDeliver(t, events)
	within(t, patience, "Close", func() { require.NoError(t, s.Sink.Close()) })
	within(t, patience, "Deliver of a closed sink", func() {
		require.Error(t, s.deliver(t.Context(), t, Events(1, From(10))))
	})
	s.requireArrived(t, events)
}

// within fails the test if f takes longer than d.
func within(t *testing.T, d time.Duration, what string, f func()) {
	t.Helper()
	start := time.Now()
	f()
	require.Less(t, time.Since(start), d, "%s took too long", what)
}
