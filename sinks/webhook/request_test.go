package webhook

import (
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/config/secret"
	"github.com/auditrelay/auditrelay/internal/httpsink"
	"github.com/auditrelay/auditrelay/relay"
	"github.com/auditrelay/auditrelay/relay/relaytest"
)

// A receiver relies on webhook-id to recognise a redelivery.
func TestBatchID(t *testing.T) {
	t.Parallel()
	events := relaytest.Events(3)
	id := batchID(events)
	assert.Regexp(t, `^batch_[A-Za-z0-9_-]{43}$`, id)
	again := slices.Clone(events)
	again[1].Received = again[1].Received.Add(time.Hour)
	assert.Equal(t, id, batchID(again), "received again")

	seen := map[string]string{id: "the batch"}
	for name, change := range map[string]func([]relay.Event) []relay.Event{
		"fewer":    func(e []relay.Event) []relay.Event { return e[:2] },
		"order":    func(e []relay.Event) []relay.Event { e[0], e[1] = e[1], e[0]; return e },
		"an id":    func(e []relay.Event) []relay.Event { e[2].ID += "x"; return e },
		"a source": func(e []relay.Event) []relay.Event { e[2].Source += "x"; return e },
		"a body":   func(e []relay.Event) []relay.Event { e[2].Body = []byte("{}"); return e },
		"a border": func(e []relay.Event) []relay.Event {
			e[2].Source, e[2].ID = e[2].Source+e[2].ID[:1], e[2].ID[1:]
			return e
		},
		"one alone": func(e []relay.Event) []relay.Event { return e[:1] },
	} {
		other := batchID(change(slices.Clone(events)))
		assert.Empty(t, seen[other], "%s gives the id of %s", name, seen[other])
		seen[other] = name
	}
}

func TestRetriesAreSignedAnew(t *testing.T) {
	t.Parallel()
	s := newSink(t, config.Webhook{URL: secret.New("https://hooks.example.com/"), Secret: secret.New(key)})
	synctest.Test(t, func(t *testing.T) {
		var requests []*http.Request
		for range 2 {
			req, err := s.request(t.Context(), relaytest.Events(2), time.Now())
			require.NoError(t, err)
			assert.Equal(t, strconv.FormatInt(time.Now().Unix(), 10), req.Header.Get("Webhook-Timestamp"))
			requests = append(requests, req)
			time.Sleep(time.Second)
		}
		assert.Equal(t, requests[0].Header.Get("Webhook-Id"), requests[1].Header.Get("Webhook-Id"))
		assert.NotEqual(t, requests[0].Header.Get("Webhook-Timestamp"), requests[1].Header.Get("Webhook-Timestamp"))
		assert.NotEqual(t, requests[0].Header.Get("Webhook-Signature"), requests[1].Header.Get("Webhook-Signature"))
	})
}

func TestHeaders(t *testing.T) {
	t.Parallel()
	s := newSink(t, config.Webhook{URL: secret.New("https://hooks.example.com/"), Headers: map[string]secret.Text{
		"content-type": secret.New("application/json"), "USER-AGENT": secret.New("mine"), "x-token": secret.New("t"),
	}})
	req, err := s.request(t.Context(), relaytest.Events(1), time.Unix(5, 0))
	require.NoError(t, err)
	assert.Equal(t, http.Header{
		"Content-Type": {"application/json"}, "User-Agent": {"mine"}, "X-Token": {"t"},
		"Webhook-Id": {batchID(relaytest.Events(1))}, "Webhook-Timestamp": {"5"},
	}, req.Header, "and no signature without a secret")
	assert.Equal(t, http.MethodPost, req.Method)
}

func TestHTTP2IsSpokenOverTLS(t *testing.T) {
	t.Parallel()
	r := newReceiver(t, true)
	require.NoError(t, newSink(t, r.config(t)).Deliver(t.Context(), relaytest.Events(1)))
	assert.Equal(t, 2, r.requests[0].ProtoMajor)
}

// The default limits leave room for the format's own bytes, so that a batch fits the usual
// limit of receivers, 1 MiB.
func TestDefaultBatchFits(t *testing.T) {
	t.Parallel()
	c := config.Config{Sinks: []config.Sink{{Webhook: &config.Webhook{}}}}
	c.SetDefaults()
	limit := c.Sinks[0]
	events := relaytest.Events(limit.BatchEvents, relaytest.BodyBytes(int(limit.BatchBytes)/limit.BatchEvents))
	body, err := batchOf(events)
	require.NoError(t, err)
	assert.Less(t, len(body), 1<<20)
	for i := range events {
		events[i].Body = append(events[i].Body[:len(events[i].Body)-1], '\n') // in base64
	}
	body, err = batchOf(events)
	require.NoError(t, err)
	assert.Less(t, len(body), 1<<20)
	assert.True(t, json.Valid(body))
	assert.Contains(t, string(body), "data_base64")
}

func TestNothingIsPostedForNothing(t *testing.T) {
	t.Parallel()
	r := newReceiver(t, false)
	require.NoError(t, newSink(t, r.config(t)).Deliver(t.Context(), nil))
	assert.Empty(t, r.requests)
}

// CloudEvents' own SDK for Go reads a request as a batch of valid events.
func TestTheSDKReadsARequest(t *testing.T) {
	t.Parallel()
	s := newSink(t, config.Webhook{URL: secret.New("https://hooks.example.com/")})
	events := relaytest.Events(3)
	events[1].ContentType, events[1].Body = "text/plain", []byte("two\nlines")
	req, err := s.request(t.Context(), events, time.Now())
	require.NoError(t, err)
	require.Equal(t, event.ApplicationCloudEventsBatchJSON, req.Header.Get("Content-Type"))
	var got []event.Event // as the SDK's receiver reads a batch, which would link a logger and much else
	require.NoError(t, json.NewDecoder(req.Body).Decode(&got))
	require.Len(t, got, len(events))
	for i := range got {
		require.NoError(t, got[i].Validate())
		assert.Equal(t, events[i].ID, got[i].ID())
		assert.Equal(t, events[i].Environment, got[i].Extensions()["environment"])
	}
	assert.Equal(t, string(events[0].Body), string(got[0].Data()))
}

func TestClosedSinkPostsNothing(t *testing.T) {
	t.Parallel()
	r := newReceiver(t, false)
	s := newSink(t, r.config(t))
	require.NoError(t, s.Close())
	for range 200 {
		require.ErrorIs(t, s.Deliver(t.Context(), relaytest.Events(1)), httpsink.ErrClosed)
	}
	r.down() // waits for the current request
	assert.Empty(t, r.requests)
}

// BenchmarkRequest measures what a delivery does before it sends: encoding, webhook-id and
// signature.
func BenchmarkRequest(b *testing.B) {
	s, err := New(complete(b, config.Webhook{URL: secret.New("https://hooks.example.com/"), Secret: secret.New(key)}), Options{})
	require.NoError(b, err)
	events := relaytest.Events(100)
	b.ReportAllocs()
	for b.Loop() {
		_, err := s.request(b.Context(), events, time.Unix(1, 0))
		require.NoError(b, err)
	}
}
