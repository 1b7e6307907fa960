package loki

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/grafana/loki/pkg/push"
	"github.com/klauspost/compress/snappy"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/testbed/realservers"
	"github.com/auditrelay/auditrelay/internal/testbed/waiting"
	"github.com/auditrelay/auditrelay/relay"
	"github.com/auditrelay/auditrelay/relay/relaytest"
)

// TestRealLoki delivers to a real Loki, and counts the events that it reads back.
func TestRealLoki(t *testing.T) {
	t.Parallel()
	binary := os.Getenv("AUDITRELAY_LOKI_BINARY")
	if binary == "" {
		t.Skip("SKIPPED, no real Loki: build one with cmd/integration/build-loki.sh, and name it in AUDITRELAY_LOKI_BINARY")
	}
	server, err := realservers.StartLoki(t.Context(), binary, t.TempDir())
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, server.Stop()) })
	for name, test := range map[string]func(*testing.T, *real){
		"plain":            testRealPlain,
		"late":             testRealLate,
		"partial":          testRealPartial,
		"several streams":  testRealSeveralStreams,
		"larger than gRPC": testRealSize,
		"check":            testRealCheck,
	} {
		t.Run(name, func(t *testing.T) {
			test(t, &real{server, strings.ReplaceAll(name, " ", "-"), time.Now()})
		})
	}
}

// real is a Loki and a label that only this test uses.
type real struct {
	*realservers.Loki

	name string
	now  time.Time
}

func (r *real) sink(t *testing.T, change func(*config.Loki)) *Sink {
	t.Helper()
	cfg := config.Loki{
		URL:    r.URL + "/loki/api/v1/push",
		Labels: map[string]string{"test": r.name, "project": "{project}", "environment": "{environment}"},
	}
	if change != nil {
		change(&cfg)
	}
	s, err := New(complete(t, cfg), Options{})
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// events returns events of the last minute.
func (r *real) events(n, from int, environments ...string) []relay.Event {
	events := relaytest.Events(n, relaytest.From(from), relaytest.Environments(environments...))
	for i := range events {
		events[i].Time = r.now.Add(-time.Minute + time.Duration(i)*time.Millisecond)
		events[i].Received = r.now
	}
	return events
}

func (r *real) ids(t *testing.T, more string) map[string]int {
	t.Helper()
	ids, err := r.IDs(t.Context(), `{test="`+r.name+`"`+more+`}`, r.now.Add(-20*24*time.Hour))
	require.NoError(t, err)
	return ids
}

// requireOnce requires that Loki has exactly these events, each once.
func requireOnce(t *testing.T, ids map[string]int, events []relay.Event) {
	t.Helper()
	for i := range events {
		require.Equal(t, 1, ids[events[i].ID], "event %d of %d", i, len(events))
	}
	require.Len(t, ids, len(events))
}

func testRealPlain(t *testing.T, r *real) {
	s := r.sink(t, nil)
	all := r.events(6000, 0, "a/1", "a/2", "b/1")
	assert.Empty(t, carryPatiently(t, s, all[:3000]))
	assert.Empty(t, carryPatiently(t, s, all[3000:]))
	requireOnce(t, r.ids(t, ""), all)
	// A repeated event can be stored twice, once Loki has closed its block.
	assert.Empty(t, carryPatiently(t, s, all[2990:3010]))
	for id, n := range r.ids(t, "") {
		require.LessOrEqual(t, n, 2, id)
	}

	byID := map[string]*relay.Event{}
	for i := range all {
		byID[all[i].ID] = &all[i]
	}
	require.NoError(t, r.Each(t.Context(), `{test="plain"}`, r.now.Add(-time.Hour), func(e realservers.LokiEntry) {
		want := byID[e.Labels["id"]]
		require.Equal(t, string(want.Body), e.Line)
		require.Equal(t, want.Time.UnixNano(), e.Time)
		for name, value := range want.Attributes {
			if name != "specversion" && name != "time" {
				require.Equal(t, value, e.Labels[name], name)
			}
		}
		require.Equal(t, "event_log", e.Labels["label_job"])
	}))
}

func testRealLate(t *testing.T, r *real) {
	s := r.sink(t, nil)
	all := r.events(900, 0, "a/1")
	for i := range 300 {
		all[300+i].Time = r.now.Add(-3*time.Hour + time.Duration(i)*time.Second)
		all[600+i].Time = r.now.Add(-100*time.Hour - time.Duration(i)*time.Minute)
	}
	assert.Empty(t, carryPatiently(t, s, all[:300]))
	s = r.sink(t, nil) // it knows nothing, as after a start
	assert.Empty(t, carryPatiently(t, s, all[300:]))
	requireOnce(t, r.ids(t, ""), all)
	assert.Len(t, r.ids(t, `, late=""`), 300)
	assert.NotEmpty(t, r.ids(t, `, late="true"`))
	assert.Empty(t, carryPatiently(t, s, r.events(10, 5000, "a/1")))

	old := r.events(5, 9000, "a/1")
	for i := range old { // the entry before them is 100 hours newer
		old[i].Time = r.now.Add(-150*time.Hour - time.Duration(i)*20*time.Minute)
	}
	assert.Empty(t, carryPatiently(t, r.sink(t, nil), old))
	ids := r.ids(t, `, late=~".+"`)
	for i := range old {
		assert.Equal(t, 1, ids[old[i].ID])
	}
}

// Some entries of a push are refused, for every reason that Loki knows. The others arrive, and
// each refused one is named.
func testRealPartial(t *testing.T, r *real) {
	s := r.sink(t, func(c *config.Loki) { c.LineBytes, c.MetadataBytes, c.MetadataEntries = 1<<20, 1<<20, 1000 })
	assert.Empty(t, carryPatiently(t, s, r.events(1, 9999, "a/1")))
	s = r.sink(t, func(c *config.Loki) { c.LineBytes, c.MetadataBytes, c.MetadataEntries = 1<<20, 1<<20, 1000 })
	all := r.events(400, 0, "a/1")
	want := map[string]string{}
	for i := range all {
		e := &all[i]
		reason := ""
		switch {
		case i%10 == 1:
			e.Time = r.now.Add(-2 * time.Hour).Add(time.Duration(i) * time.Second) // late
		case i%50 == 2:
			e.Time, reason = r.now.Add(-200*time.Hour), "has timestamp too old"
		case i%50 == 3:
			e.Time, reason = r.now.Add(time.Hour+time.Duration(i)*time.Second), "has timestamp too new"
		case i == 104:
			e.Body, reason = []byte(strings.Repeat("x", 300_000)), "max entry size"
		case i == 105:
			e.Subject, reason = strings.Repeat("s", 70_000), "has structured metadata too large"
		case i == 106:
			reason = "too many structured metadata labels"
			for range 200 {
				e.Labels = append(e.Labels, relay.Label{Name: "n", Value: "v"})
			}
		}
		if reason != "" {
			want[e.ID] = reason
		}
	}
	refused := carryPatiently(t, s, all)
	ids := r.ids(t, "")
	for i := range all {
		id := all[i].ID
		if want[id] == "" {
			require.NoError(t, refused[id], "event %d", i)
			require.Equal(t, 1, ids[id], "event %d", i)
			continue
		}
		require.ErrorContains(t, refused[id], want[id], "event %d", i)
		require.Zero(t, ids[id])
	}
	assert.Len(t, refused, len(want))
	assert.Len(t, r.ids(t, `, late="true"`), 40)
}

// This is why a push has one stream: Loki answers a push of two with 204, though it left out
// the first one's entry. If this test fails, Loki was corrected.
func testRealSeveralStreams(t *testing.T, r *real) {
	entry := func(id string, at time.Time) []push.Entry {
		return []push.Entry{{Timestamp: at, Line: id, StructuredMetadata: push.LabelsAdapter{{Name: "id", Value: id}}}}
	}
	const first, second = `{test="several-streams", s="1"}`, `{test="several-streams", s="2"}`
	require.Equal(t, http.StatusNoContent, r.post(t, push.Stream{Labels: first, Entries: entry("newest", r.now)}))
	status := r.post(t,
		push.Stream{Labels: first, Entries: entry("lost", r.now.Add(-2*time.Hour))},
		push.Stream{Labels: second, Entries: entry("last", r.now)})
	assert.Equal(t, http.StatusNoContent, status)
	assert.Equal(t, map[string]int{"newest": 1, "last": 1}, r.ids(t, ""))
}

func (r *real) post(t *testing.T, streams ...push.Stream) int {
	t.Helper()
	plain, err := (&push.PushRequest{Streams: streams}).Marshal()
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), waiting.Stall)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, r.URL+"/loki/api/v1/push", bytes.NewReader(snappy.Encode(nil, plain)))
	require.NoError(t, err)
	request.Header.Set("Content-Type", "application/x-protobuf")
	res, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	require.NoError(t, res.Body.Close())
	return res.StatusCode
}

// Loki's processes refuse from each other even sizes that are within its rate limit.
func testRealSize(t *testing.T, r *real) {
	s := r.sink(t, nil)
	s.limit.Store(64 << 20)
	all := r.events(60, 0, "a/1")
	for i := range all {
		all[i].Body = bytes.Repeat([]byte{'a' + byte(i%26)}, 82_000)
	}
	assert.Empty(t, carryPatiently(t, s, all))
	requireOnce(t, r.ids(t, ""), all)
	assert.Less(t, s.limit.Load(), int64(4<<20))
}

// carryPatiently delivers with a pump, with the waits that Loki asks for, and returns the
// events that are refused for good.
func carryPatiently(t *testing.T, s *Sink, events []relay.Event) map[string]error {
	t.Helper()
	var dead relaytest.DeadLetters
	source := relaytest.NewSource(events)
	source.Close()
	pump := relay.Pump{Name: "loki", Source: source, Sink: s, DeadLetters: &dead, Logger: slog.New(slog.DiscardHandler), Limit: relay.BatchLimit{Events: 100_000, Bytes: 64 << 20}}
	require.ErrorIs(t, pump.Run(t.Context()), relaytest.ErrClosed)
	refused := map[string]error{}
	for _, k := range dead.Kept("loki") {
		refused[k.Event.ID] = errors.New(k.Reason)
	}
	return refused
}

func testRealCheck(t *testing.T, r *real) {
	found := map[string]string{}
	require.NoError(t, r.sink(t, nil).Check(t.Context(), func(what, text string) { found[what] = text }))
	assert.Contains(t, found["max_line_size"], "256KB; ")
	assert.Contains(t, found["max_chunk_age"], "2h0m0s; ")
	assert.Equal(t, "1w; older events go to the dead letters", found["reject_old_samples_max_age"])
	assert.Empty(t, r.ids(t, ""))
}
