package workspacesim

import (
	"encoding/json"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func eventsOf(t *testing.T, o Options, n int) []string {
	t.Helper()
	require.NoError(t, o.complete())
	g := newGenerator(&o, &environment{project: "acme-portal", slug: "production"})
	var c clock
	var list []string
	for seq := range n {
		c.set(time.Date(2026, 11, 21, 1, 2, 3, 456_789_000, time.UTC).UnixNano() + int64(seq)*1_000_000)
		var plain string
		require.NoError(t, json.Unmarshal(append(g.appendEvent([]byte(`"`), uint64(seq), &c), '"'), &plain))
		list = append(list, plain)
	}
	return list
}

func TestEvents(t *testing.T) {
	t.Parallel()
	agents, statuses := map[string]bool{}, map[string]int{}
	events := eventsOf(t, Options{Seed: 9}, 1000)
	requests, bytes := map[string]int{}, 0
	for seq, text := range events {
		var e map[string]any
		require.NoError(t, json.Unmarshal([]byte(text), &e), text)
		for _, name := range []string{"event_id", "project_id", "environment", "action", "status", "request_id", "created_at", "timestamp", "actor", "ip", "user_agent", "details"} {
			require.Contains(t, e, name)
		}
		id, _ := e["event_id"].(string)
		prefix, n, ok := ParseEventID(id)
		require.True(t, ok)
		assert.Equal(t, "event-log-acme-portal.production-9-", prefix)
		assert.EqualValues(t, seq, n)
		assert.Equal(t, EventID(prefix, n), id)
		created, err := time.Parse(time.RFC3339Nano, e["created_at"].(string))
		require.NoError(t, err)
		assert.EqualValues(t, e["timestamp"], created.UnixMilli())
		agents[e["user_agent"].(string)] = true
		statuses[e["status"].(string)]++
		requests[e["request_id"].(string)]++
		assert.GreaterOrEqual(t, len(text), 600)
		assert.LessOrEqual(t, len(text), 660)
		bytes += len(text)
	}
	assert.InDelta(t, 610, bytes/len(events), 10)
	for _, a := range userAgents {
		assert.Contains(t, agents, a)
	}
	assert.Len(t, requests, 500, "two events a request")
	assert.Equal(t, 500, statuses["start"])
	assert.InDelta(t, 50, statuses["error"], 40)
}

func TestEventsFollowFromTheSeed(t *testing.T) {
	t.Parallel()
	assert.Equal(t, eventsOf(t, Options{Seed: 1}, 50), eventsOf(t, Options{Seed: 1}, 50))
	a, b := eventsOf(t, Options{Seed: 1, Run: "x"}, 50), eventsOf(t, Options{Seed: 2, Run: "x"}, 50)
	for i := range a {
		assert.NotEqual(t, a[i], b[i])
	}
}

func TestEventSize(t *testing.T) {
	t.Parallel()
	for _, size := range []int{1000, 5000} {
		for _, e := range eventsOf(t, Options{EventBytes: size}, 50) {
			assert.Len(t, e, size)
		}
	}
}

func TestParseEventID(t *testing.T) {
	t.Parallel()
	for _, bad := range []string{"", "event-log-", "000000000001", "event-log-x-00000000000x", "other-log-x-000000000001", "event-log-x_000000000001"} {
		_, _, ok := ParseEventID(bad)
		assert.False(t, ok, bad)
	}
}

func TestRangeSet(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 1))
	for range 50 {
		var set rangeSet
		held := map[uint64]bool{}
		for _, k := range rng.Perm(60)[:rng.IntN(60)] {
			set.add(Range{uint64(3 * k), uint64(3*k + 3)})
			for i := range 3 {
				held[uint64(3*k+i)] = true
			}
		}
		total := 0
		for i, r := range set {
			require.Less(t, r.From, r.To)
			require.True(t, i == 0 || set[i-1].To < r.From, "ranges touch")
			for n := r.From; n < r.To; n++ {
				require.True(t, held[n])
				total++
			}
		}
		require.Len(t, held, total)
	}
}

func benchStream(b *testing.B, o Options) (*stream, []segment) {
	b.Helper()
	sim, err := New(o)
	require.NoError(b, err)
	now := time.Now().UnixNano()
	return sim.projects[0].environments[0].stream, []segment{{Range{0, 500}, now, 20_000}}
}

func BenchmarkAppendEvent(b *testing.B) {
	st, _ := benchStream(b, Options{})
	var c clock
	var dst []byte
	now := time.Now().UnixNano()
	b.ReportAllocs()
	for seq := uint64(0); b.Loop(); seq++ {
		c.set(now + int64(seq)*20_000)
		dst = st.gen.appendEvent(dst[:0], seq, &c)
		b.SetBytes(int64(len(dst)))
	}
}

// BenchmarkPush measures a push of 500 events, with the intake's side of the connection.
func BenchmarkPush(b *testing.B) {
	for name, share := range map[string]float64{"plain": -1, "gzip": 1, "usual": 0.1} {
		b.Run(name, func(b *testing.B) {
			sink := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				w.WriteHeader(http.StatusNoContent)
			}))
			defer sink.Close()
			st, segments := benchStream(b, Options{GzipShare: share})
			defer st.push.close()
			to := &target{kind: typeLoki, url: sink.URL}
			var body bodyBuffer
			b.ReportAllocs()
			for n := uint64(0); b.Loop(); n += 500 {
				segments[0].Range = Range{n, n + 500}
				body.build(st, to, segments)
				require.True(b, st.push.send(b.Context(), to, &body).acknowledged())
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/500, "ns/event")
		})
	}
}

func TestBuildsBothKindsOfBody(t *testing.T) {
	t.Parallel()
	sim, err := New(Options{GzipShare: 1})
	require.NoError(t, err)
	st := sim.projects[0].environments[0].stream
	var b bodyBuffer
	segments := []segment{{Range{3, 5}, 1_700_000_000_000_000_000, 10}, {Range{9, 10}, 1_700_000_000_500_000_000, 0}}
	b.build(st, &target{kind: typeLoki}, segments)
	lines, err := lokiLines(json.NewDecoder(strings.NewReader(string(b.plain))))
	require.NoError(t, err)
	require.Len(t, lines, 3)
	assert.Contains(t, string(b.plain), `["1700000000000000010","`)
	z, err := gzip.NewReader(&b.packed)
	require.NoError(t, err)
	unpacked, err := io.ReadAll(z)
	require.NoError(t, err)
	assert.Equal(t, b.plain, unpacked)
	b.build(st, &target{kind: typeDatadog}, segments)
	same, err := datadogLines(json.NewDecoder(strings.NewReader(string(b.plain))))
	require.NoError(t, err)
	assert.Equal(t, lines, same)
}

// The transport may read a body even after the answer: until it has read a lent body to
// its end, the body must not change.
func TestLentBodiesAreNotWrittenOver(t *testing.T) {
	t.Parallel()
	for _, share := range []float64{-1, 1} {
		sim, err := New(Options{GzipShare: share})
		require.NoError(t, err)
		st := sim.projects[0].environments[0].stream
		var b bodyBuffer
		build := func(from uint64) []byte {
			b.build(st, &target{kind: typeLoki}, []segment{{Range{from, from + 10}, 1, 1}})
			if b.gzipped {
				return b.packed.Bytes()
			}
			return b.plain
		}
		want := strings.Clone(string(build(0)))
		late, _ := b.reader()
		next := build(10)
		got, err := io.ReadAll(late)
		require.NoError(t, err)
		assert.Equal(t, want, string(got))
		read, _ := b.reader()
		_, err = io.Copy(io.Discard, read)
		require.NoError(t, err)
		assert.Same(t, &next[0], &build(10)[0], "memory is used again once all was read")
	}
}
