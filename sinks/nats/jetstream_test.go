package nats

import (
	"bytes"
	"context"
	"errors"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/testbed/waiting"
	"github.com/auditrelay/auditrelay/relay"
	"github.com/auditrelay/auditrelay/relay/relaytest"
)

func TestRedeliveryIsStoredOnce(t *testing.T) {
	t.Parallel()
	srv := startServer(t, nil)
	stream := createTestStream(t, dial(t, srv), nil)
	events := relaytest.Events(100)
	for range 3 { // a new sink each time, as after a restart
		require.NoError(t, newSink(t, srv.Addr().String(), nil).Deliver(t.Context(), events))
	}
	require.Len(t, arrived(t, stream), 100)

	// An id is unique only within its source.
	twin := relaytest.Events(1, relaytest.Environments("acme/staging"))
	twin[0].ID = events[0].ID
	require.NoError(t, newSink(t, srv.Addr().String(), nil).Deliver(t.Context(), twin))
	require.Len(t, arrived(t, stream), 101)
}

// Three pushes of one id, each with another body, are three events. When one of them is
// delivered again, it is a duplicate, and is counted as one.
func TestOneIDWithThreeBodiesIsThreeEvents(t *testing.T) {
	t.Parallel()
	srv := startServer(t, nil)
	stream := createTestStream(t, dial(t, srv), nil)
	counted := prometheus.NewCounter(prometheus.CounterOpts{Name: "duplicates"})
	sink := newSinkWith(t, srv.Addr().String(), Options{Duplicates: counted}, nil)
	bodies := []string{`{"state":"pending"}`, `{"state":"approved"}`, `{"state":"revoked"}`}
	for _, body := range bodies {
		e := relaytest.Events(1)
		e[0].Body = []byte(body)
		require.NoError(t, sink.Deliver(t.Context(), e))
	}
	var stored []string
	for _, a := range arrived(t, stream) {
		stored = append(stored, string(a.Body))
	}
	require.Equal(t, bodies, stored)
	require.Zero(t, testutil.ToFloat64(counted))

	again := relaytest.Events(1)
	again[0].Body = []byte(bodies[1])
	require.NoError(t, sink.Deliver(t.Context(), again))
	require.Len(t, arrived(t, stream), 3)
	require.InDelta(t, 1, testutil.ToFloat64(counted), 0)
}

func TestMessageIDsDoNotCollide(t *testing.T) {
	t.Parallel()
	b := newBuilder(parseSubject("auditrelay.{project}.{environment}.{type}"))
	seen := map[string]bool{}
	for _, e := range []relay.Event{
		{Source: "/a", ID: "b c"},
		{Source: "/a b", ID: "c"},
		{Source: "/a%20b", ID: "c"},
		{Source: "/a", ID: "b%20c"},
		{Source: "/a", ID: "b c", Body: []byte("d")},
		{Source: "/a", ID: "b c d"},
	} {
		id := b.messageID(&e)
		require.False(t, seen[id], id)
		seen[id] = true
	}
}

func TestMissingStreamIsNamed(t *testing.T) {
	t.Parallel()
	srv := startServer(t, nil)
	sink := newSink(t, srv.Addr().String(), func(c *config.NATS) { c.Subject = "elsewhere.{environment}" })
	err := sink.Deliver(t.Context(), relaytest.Events(10))
	require.ErrorIs(t, err, errNoStream)
	require.ErrorContains(t, err, "elsewhere.production")
	require.False(t, relay.IsPermanent(err))
}

func TestStreamIsCreatedAndCreatedAgain(t *testing.T) {
	t.Parallel()
	srv := startServer(t, nil)
	sink := newSink(t, srv.Addr().String(), func(c *config.NATS) { c.CreateStream = "LOG" })
	require.NoError(t, sink.Deliver(t.Context(), relaytest.Events(10)))
	js, err := jetstream.New(dial(t, srv))
	require.NoError(t, err)
	stream, err := js.Stream(t.Context(), "LOG")
	require.NoError(t, err)
	require.Equal(t, []string{"auditrelay.*.*.>"}, stream.CachedInfo().Config.Subjects)
	require.Len(t, arrived(t, stream), 10)

	require.NoError(t, js.DeleteStream(t.Context(), "LOG"))
	require.Error(t, sink.Deliver(t.Context(), relaytest.Events(10)))
	require.NoError(t, sink.Deliver(t.Context(), relaytest.Events(10)))
}

// create_stream makes a stream that is missing, and leaves an existing one as it is.
func TestAnExistingStreamStaysAsItIs(t *testing.T) {
	t.Parallel()
	srv := startServer(t, nil)
	js, err := jetstream.New(dial(t, srv))
	require.NoError(t, err)
	stream, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "LOG", Subjects: []string{"auditrelay.*.*.*"}})
	require.NoError(t, err)
	sink := newSink(t, srv.Addr().String(), func(c *config.NATS) { c.CreateStream = "LOG" })
	event := relaytest.Events(1)
	event[0].Type = "settings.changed"
	require.ErrorIs(t, sink.Deliver(t.Context(), event), errNoStream)
	info, err := stream.Info(t.Context())
	require.NoError(t, err)
	require.Equal(t, []string{"auditrelay.*.*.*"}, info.Config.Subjects)
}

// A full stream stores as much as fits, and the sink names exactly the others, which are tried
// again.
func TestFullStreamNamesTheRest(t *testing.T) {
	t.Parallel()
	srv := startServer(t, nil)
	limit := func(n int64) func(*jetstream.StreamConfig) {
		return func(c *jetstream.StreamConfig) { c.MaxMsgs, c.Discard = n, jetstream.DiscardNew }
	}
	nc := dial(t, srv)
	stream := createTestStream(t, nc, limit(10))
	sink := newSink(t, srv.Addr().String(), nil)
	events := relaytest.Events(5000)
	err := sink.Deliver(t.Context(), events)
	var partial *relay.PartialError
	require.ErrorAs(t, err, &partial)
	require.Len(t, partial.Failures, 4990)
	require.Equal(t, 10, partial.Failures[0].Index)
	require.False(t, relay.IsPermanent(partial.Failures[0].Err))
	require.ErrorContains(t, partial.Failures[0].Err, "maximum messages exceeded")

	err = sink.Deliver(t.Context(), events[10:])
	require.Error(t, err)
	require.False(t, errors.As(err, &partial), "nothing was acknowledged, so nothing is partial")

	cfg := stream.CachedInfo().Config
	limit(-1)(&cfg)
	js, err := jetstream.New(nc)
	require.NoError(t, err)
	_, err = js.UpdateStream(t.Context(), cfg)
	require.NoError(t, err)
	require.NoError(t, sink.Deliver(t.Context(), events[10:]))
	got := arrived(t, stream)
	require.Len(t, got, len(events))
	for i := range events {
		require.Equal(t, events[i].ID, got[i].ID)
	}
}

func TestEventsTooLargeAreNamed(t *testing.T) {
	t.Parallel()
	srv := startServer(t, nil)
	stream := createTestStream(t, dial(t, srv), func(c *jetstream.StreamConfig) { c.MaxMsgSize = 10_000 })
	events := relaytest.Events(20)
	events[3].Body = make([]byte, 20_000)              // more than the stream takes
	events[7].Body = make([]byte, 2<<20)               // more than the server takes
	events[9].Type = strings.Repeat("long", 2000)      // more than a subject takes
	events[11].Subject = strings.Repeat("long", 5_000) // the headers alone are too much for the stream
	err := newSink(t, srv.Addr().String(), nil).Deliver(t.Context(), events)
	var partial *relay.PartialError
	require.ErrorAs(t, err, &partial)
	var named []int
	for _, f := range partial.Failures {
		named = append(named, f.Index)
		assert.True(t, relay.IsPermanent(f.Err), "%d: %v", f.Index, f.Err)
	}
	require.Equal(t, []int{3, 7, 9, 11}, named)
	assert.ErrorContains(t, partial.Failures[0].Err, "message size exceeds maximum")
	assert.ErrorContains(t, partial.Failures[1].Err, "at most 1048576")
	assert.ErrorContains(t, partial.Failures[2].Err, "subject")
	require.Len(t, arrived(t, stream), 16)
}

// A real server goes away in the middle of deliveries, and comes back with its files.
func TestServerRestart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	first := startServer(t, func(o *server.Options) { o.StoreDir = dir })
	nc := dial(t, first)
	createTestStream(t, nc, nil)
	sink := newSink(t, first.Addr().String(), nil)
	address := first.Addr().String()
	events := relaytest.Events(20_000)
	require.NoError(t, sink.Deliver(t.Context(), events[:1000]))

	go func() { first.Shutdown() }()
	acknowledged := 1000
	for acknowledged < len(events) {
		if err := sink.Deliver(t.Context(), events[acknowledged:acknowledged+1000]); err != nil {
			require.False(t, relay.IsPermanent(err))
			break
		}
		acknowledged += 1000
	}
	first.WaitForShutdown()
	require.Error(t, sink.Deliver(t.Context(), events[acknowledged:]))

	_, port, err := net.SplitHostPort(address)
	require.NoError(t, err)
	second := startServer(t, func(o *server.Options) {
		o.StoreDir = dir
		o.Port, err = strconv.Atoi(port)
		require.NoError(t, err)
	})
	for acknowledged < len(events) {
		deliverEventually(t, sink, events[acknowledged:acknowledged+1000])
		acknowledged += 1000
	}
	js, err := jetstream.New(dial(t, second))
	require.NoError(t, err)
	stream, err := js.Stream(t.Context(), testStream)
	require.NoError(t, err)
	got := arrived(t, stream)
	require.Len(t, got, len(events), "each event once")
}

func deliverEventually(t *testing.T, sink relay.Sink, events []relay.Event) {
	t.Helper()
	waiting.Until(t, func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		return sink.Deliver(ctx, events) == nil
	})
}

func TestDeliveryIsBounded(t *testing.T) {
	t.Parallel()
	for _, size := range []int{1, 256 << 10} {
		f := &delivery{events: make([]relay.Event, 10_000), settled: make([]bool, 10_000)}
		body := make([]byte, size)
		launched := 0
		for ; launched < len(f.events); launched++ {
			if _, full := f.full(); full {
				break
			}
			f.events[launched].Body = body
			f.launch(launched)
		}
		require.Equal(t, min(maxInFlight, maxInFlightBytes/size), launched)
		half, _ := f.full()
		require.False(t, f.reached(half), "to wait for half of them is to wait")
	}
}

func FuzzAck(f *testing.F) {
	f.Add([]byte(`{"stream":"S","seq":1}`))
	f.Add([]byte(`{"stream":"S","seq":1,"duplicate":true}`))
	f.Add([]byte(`{"error":{"code":503,"err_code":10077,"description":"maximum messages exceeded"},"stream":"S","seq":0}`))
	f.Add([]byte(`{"stream":"S","error":{"code":400}}`))
	f.Add([]byte(``))
	f.Fuzz(func(t *testing.T, data []byte) {
		err := ackError(&natsgo.Msg{Data: data})
		require.False(t, err == nil && !bytes.Contains(data, []byte(`"`)), "no answer without a stream's name stores anything")
	})
}

func TestAnswers(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		data      string
		want      string // of the error, "" for none
		permanent bool
	}{
		{`{"stream":"S","seq":1}`, "", false},
		{`{"stream":"S", "domain":"d", "seq":1,"duplicate":true}`, "", false},
		{` {"seq":1,"stream":"S"}`, "", false},
		{`{"error":{"code":503,"err_code":10077,"description":"maximum messages exceeded"},"stream":"S","seq":0}`, "maximum messages", false},
		{`{"stream":"S","seq":0,"error":{"code":400,"err_code":10054,"description":"message size"}}`, "message size", true},
		{`{"stream":"","seq":1}`, "names no stream", false},
		{`{"stream":"S","seq":1`, "read acknowledgement", false},
		{`{"error":{"code":400,"err_code":10097,"description":"header size"}}`, "header size", true},
		{`{}`, "no stream", false},
		{`+OK`, "read acknowledgement", false},
	} {
		err := ackError(&natsgo.Msg{Data: []byte(c.data)})
		if c.want == "" {
			assert.NoError(t, err, c.data)
			continue
		}
		assert.ErrorContains(t, err, c.want, c.data)
		assert.Equal(t, c.permanent, relay.IsPermanent(err), c.data)
	}
}
