package datadog

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/httpsink"
	"github.com/auditrelay/auditrelay/internal/testbed/realservers"
	"github.com/auditrelay/auditrelay/internal/testbed/waiting"
	"github.com/auditrelay/auditrelay/relay"
	"github.com/auditrelay/auditrelay/relay/relaytest"
)

func TestEntryOnTheWire(t *testing.T) {
	t.Parallel()
	d := newIntake(t)
	s := newSink(t, d.URL, func(c *config.Datadog) {
		c.Source, c.Service, c.Hostname, c.Tags = "src", "{project}", "{environment}.example.com", []string{"env:{environment}", "team:iam"}
	})
	e := relaytest.Events(1)[0]
	e.Body = []byte(`{"action":"<a> & b","status":"error","n":12345678901234567890123, "x":1.50,"message":"m","ddtags":"t"}`)
	require.NoError(t, s.Deliver(t.Context(), []relay.Event{e}))
	require.Len(t, d.Entries(), 1)
	got := d.Entries()[0]
	assert.Equal(t, string(e.Body), got.Message)
	assert.Equal(t, "src", got.Source)
	assert.Equal(t, "acme", got.Service)
	assert.Equal(t, "production.example.com", got.Hostname)
	assert.Equal(t, "env:production,team:iam", got.Tags)
	assert.Equal(t, "error", got.Status)
	assert.Equal(t, e.Time.UnixMilli(), got.Timestamp)
	assert.Equal(t, "<a> & b", got.All["action"])
	assert.Equal(t, json.Number("12345678901234567890123"), got.All["n"])
	assert.Equal(t, json.Number("1.50"), got.All["x"])
	assert.Equal(t, map[string]any{"status": "error", "message": "m", "ddtags": "t"}, got.All["event"])
	assert.Equal(t, httpsink.UserAgent, d.Requests()[0].UserAgent)
}

func TestCompression(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{"": "gzip", "gzip": "gzip", "deflate": "deflate", "none": "identity"} {
		d := newIntake(t)
		s := newSink(t, d.URL, func(c *config.Datadog) { c.Compression = name })
		events := relaytest.Events(20)
		require.NoError(t, s.Deliver(t.Context(), events))
		assert.Equal(t, idsOf(events), d.taken())
		assert.Equal(t, want, d.Requests()[0].Encoding)
	}
}

func TestRequestsByCount(t *testing.T) {
	t.Parallel()
	d := newIntake(t)
	s := newSink(t, d.URL, nil)
	events := relaytest.Events(2100)
	require.NoError(t, s.Deliver(t.Context(), events))
	assert.Equal(t, idsOf(events), d.taken())
	var sizes []int
	for _, r := range d.Requests() {
		sizes = append(sizes, r.Entries)
	}
	assert.Equal(t, []int{1000, 1000, 100}, sizes)
	require.NoError(t, s.Deliver(t.Context(), nil))
	assert.Len(t, d.Requests(), 3, "nothing to send, nothing sent")
}

func TestRequestsByBytes(t *testing.T) {
	t.Parallel()
	d := newIntake(t)
	s := newSink(t, d.URL, func(c *config.Datadog) { c.Attributes = "none" })
	events := relaytest.Events(120, relaytest.BodyBytes(100_000))
	for i := range events { // a client that did not count escapes would send 6 times as much
		events[i].Body = []byte(strings.Repeat("\x01", 16_000+i))
	}
	require.NoError(t, s.Deliver(t.Context(), events))
	assert.Equal(t, idsOf(events), d.taken())
	requests := d.Requests()
	require.Len(t, requests, 3)
	for _, r := range requests[:2] {
		assert.LessOrEqual(t, r.Bytes, maxRequestBytes)
		assert.Greater(t, r.Bytes, maxRequestBytes-100_000, "a full request")
	}
}

// The limits are compared with the size on the wire.
func TestSizeOnTheWire(t *testing.T) {
	t.Parallel()
	d := newIntake(t)
	s := newSink(t, d.URL, nil)
	for _, body := range []string{
		"", "{}", `{"a":"<>&\u2028","` + "\u2028" + `<":1, "b" : [ 1 , 2 ]}`, strings.Repeat("\x01\x7f\b\f\"\\é😀\u2029", 50),
		"\xff\xfe", `{"a":1,"a":2,"status":"x","timestamp":1}`,
	} {
		e := relaytest.Events(1)[0]
		e.Body, e.Subject = []byte(body), "<\u2028\x00\">"
		made, err := s.maker.encoder().appendEntry(nil, &e, sentAt())
		require.NoError(t, err)
		require.NoError(t, s.Deliver(t.Context(), []relay.Event{e}))
		requests := d.Requests()
		assert.Equal(t, len("[]")+len(made), requests[len(requests)-1].Bytes, body)
	}
}

// An entry that does not fit into a request is the first of the next one. If it is refused, it
// is found by halving there as well.
func TestRefusedBehindAFullRequest(t *testing.T) {
	t.Parallel()
	d := newIntake(t)
	refuse := refusedByTheIntake(d)
	events := relaytest.Events(8, relaytest.BodyBytes(900_000))
	refuse(&events[5])
	refuse(&events[7])
	s := newSink(t, d.URL, func(c *config.Datadog) { c.Attributes = "none" })
	named := failed(t, s.Deliver(t.Context(), events))
	require.Len(t, named, 2)
	assert.True(t, relay.IsPermanent(named[5]) && relay.IsPermanent(named[7]))
	taken := append(slices.Clone(events[:5]), events[6])
	assert.Equal(t, idsOf(taken), d.taken())
	for i, e := range d.Entries() {
		assert.True(t, string(taken[i].Body) == e.Message, "entry %d", i)
	}
}

// When a request fails in the middle of a delivery, the error names exactly the unacknowledged
// events, and nothing that follows them is sent.
func TestFailureMidway(t *testing.T) {
	t.Parallel()
	d := newIntake(t)
	s := newSink(t, d.URL, nil)
	events := relaytest.Events(3100)
	events[5].Time = sentAt().Add(-19 * time.Hour)
	events[3050].Time = sentAt().Add(-19 * time.Hour)
	d.Respond(func(n int, _ []string) *realservers.DatadogAnswer {
		if n == 2 {
			return &realservers.DatadogAnswer{Status: 503}
		}
		return nil
	})
	named := failed(t, s.Deliver(t.Context(), events))
	assert.Len(t, d.Requests(), 3)
	assert.Len(t, d.taken(), 2000)
	assert.True(t, relay.IsPermanent(named[5]))
	for i := range events {
		if i == 5 {
			continue
		}
		err, there := named[i]
		require.Equal(t, i > 2000, there, "event %d", i)
		require.Equal(t, i == 3050, relay.IsPermanent(err), "event %d; 3050 was encoded while its predecessors were sent", i)
	}
	assert.ErrorContains(t, named[2001], "503 Service Unavailable")

	named = failed(t, s.Deliver(t.Context(), events[2001:]))
	require.Len(t, named, 1)
	assert.True(t, relay.IsPermanent(named[3050-2001]))
	assert.Equal(t, append(idsOf(events[:5]), append(idsOf(events[6:3050]), idsOf(events[3051:])...)...), d.taken())
}

func TestFailureOfAll(t *testing.T) {
	t.Parallel()
	d := newIntake(t)
	s := newSink(t, d.URL, nil)
	d.Respond(func(int, []string) *realservers.DatadogAnswer { return &realservers.DatadogAnswer{Status: 500} })
	err := s.Deliver(t.Context(), relaytest.Events(1500))
	var partial *relay.PartialError
	assert.NotErrorAs(t, err, &partial)
	assert.ErrorContains(t, err, "answered 500 Internal Server Error")
	assert.Len(t, d.Requests(), 1)
}

// The sink never sends entries that the intake would acknowledge with 202 and lose. The fake
// would report them.
func TestNothingIsLostInSilence(t *testing.T) {
	t.Parallel()
	spoil := func(events []relay.Event) {
		events[1].Time = sentAt().Add(-18 * time.Hour)
		events[3].Time = sentAt().Add(2 * time.Hour)
		events[5].Body = []byte(strings.Repeat("x", 1_000_001))
		events[7].Body = []byte(strings.Repeat("\x01", 170_000))
		events[9].Body = []byte(`{"a":"` + strings.Repeat("y", 600_000) + `"}`)
	}
	d := newIntake(t)
	events := relaytest.Events(12)
	spoil(events)
	named := failed(t, newSink(t, d.URL, nil).Deliver(t.Context(), events))
	require.Len(t, named, 4)
	for i, want := range map[int]string{1: "older than the intake's 18 h", 3: "2 h", 5: "larger than the intake's 1 MB", 7: "larger than"} {
		assert.ErrorContains(t, named[i], want)
		assert.True(t, relay.IsPermanent(named[i]))
	}
	assert.Len(t, d.taken(), 8)
	assert.Empty(t, d.Violations())

	d = newIntake(t)
	s := newSink(t, d.URL, func(c *config.Datadog) { c.Oversize, c.OutsideWindow = "truncate", "restamp" })
	require.NoError(t, s.Deliver(t.Context(), events))
	assert.Equal(t, idsOf(events), d.taken())
	assert.Empty(t, d.Violations())
	marks := d.Entries()[5].All["auditrelay"]
	assert.Equal(t, map[string]any{"truncated": true, "original_size": json.Number("1000001")}, marks)
}

// The fake notices violations: the same entries are sent without the sink's checks.
func TestTheIntakeSeesViolations(t *testing.T) {
	t.Parallel()
	d := newIntake(t)
	s := newSink(t, d.URL, nil)
	entry := func(message string, at time.Time) string {
		return fmt.Sprintf(`{"message":%q,"timestamp":%d}`, message, at.UnixMilli())
	}
	submit := func(entries ...string) error {
		array := "[" + strings.Join(entries, ",") + "]"
		return s.submit(s.target.context(t.Context(), s.key), s.compressor.compress(new(bytes.Buffer), []byte(array)))
	}
	require.NoError(t, submit(
		entry("fine", sentAt()), entry("old", sentAt().Add(-19*time.Hour)), entry("ahead", sentAt().Add(3*time.Hour)),
		entry(strings.Repeat("x", 1_000_000), sentAt()),
	))
	assert.Len(t, d.Entries(), 2)
	assert.Len(t, d.Violations(), 3)
	for name, entries := range map[string][]string{
		"413":  slices.Repeat([]string{entry("", sentAt())}, 1001),
		"5 MB": {entry(strings.Repeat("x", 5_000_000), sentAt())},
	} {
		var refused *refusal
		require.ErrorAs(t, submit(entries...), &refused, name)
		assert.Contains(t, refused.text, name)
	}
}

func TestConcurrentDeliveries(t *testing.T) {
	t.Parallel()
	d := newIntake(t)
	s := newSink(t, d.URL, nil)
	var group sync.WaitGroup
	for n := range 4 {
		group.Go(func() {
			assert.NoError(t, s.Deliver(t.Context(), relaytest.Events(300, relaytest.From(n*300))))
		})
	}
	group.Wait()
	assert.Len(t, d.IDs(), 1200)
}

// With a pump and an outage, each refused event is in the dead letters by name, and all others
// arrive once.
func TestThroughAPump(t *testing.T) {
	t.Parallel()
	d := newIntake(t)
	events := relaytest.Events(1100)
	events[7].Time = sentAt().Add(-20 * time.Hour)
	events[1050].Body = []byte(strings.Repeat("x", 2_000_000))
	d.Respond(func(n int, ids []string) *realservers.DatadogAnswer {
		switch {
		case n == 1:
			return &realservers.DatadogAnswer{Status: 503}
		case slices.Contains(ids, events[600].ID):
			return &realservers.DatadogAnswer{Status: 400}
		}
		return nil
	})
	source, letters := relaytest.NewSource(events), &relaytest.DeadLetters{}
	pump := relay.Pump{
		Name: "datadog", Source: source, Sink: newSink(t, d.URL, nil), DeadLetters: letters,
		Logger: slog.New(slog.DiscardHandler),
	}
	source.Close()
	ctx, cancel := context.WithTimeout(t.Context(), waiting.Stall)
	defer cancel()
	require.ErrorIs(t, pump.Run(ctx), relaytest.ErrClosed)
	assert.Equal(t, relay.Position(len(events)), source.Acked())
	reasons := map[string]string{}
	for _, r := range letters.Kept("datadog") {
		reasons[r.Event.ID] = r.Reason
	}
	require.Len(t, reasons, 3)
	assert.Contains(t, reasons[events[7].ID], "older than the intake's 18 h")
	assert.Contains(t, reasons[events[1050].ID], "larger than the intake's 1 MB")
	assert.Contains(t, reasons[events[600].ID], "400 Bad Request")
	ids := d.IDs()
	assert.Len(t, ids, 1097)
	for id, n := range ids {
		assert.Equal(t, 1, n, id)
	}
	assert.Empty(t, d.Violations())
}
