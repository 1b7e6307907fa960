package webhook

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/config/secret"
	"github.com/auditrelay/auditrelay/relay"
	"github.com/auditrelay/auditrelay/relay/relaytest"
)

// A batch is one message. A hostile text in it is neither a mention nor a link, and a body of
// any form does not stop the message.
func TestABatchIsOneMessage(t *testing.T) {
	t.Parallel()
	var got []string
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		var message struct{ Text string }
		if json.Unmarshal(body, &message) == nil && r.Header.Get("Content-Type") == "application/json" {
			got = append(got, message.Text)
		}
	}))
	t.Cleanup(receiver.Close)
	sink, err := New(config.Webhook{URL: secret.New(receiver.URL)}, Options{Format: "slack"})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, sink.Close()) })
	change := func(summary string) relay.Event {
		body, err := json.Marshal(map[string]any{"detail": map[string]string{"summary": summary, "severity": "high", "direction": "weaker"}})
		require.NoError(t, err)
		return relay.Event{ID: summary, Type: "settings.changed", Project: "shop", Environment: "live", Subject: "password_strength_config", Body: body}
	}
	events := []relay.Event{
		change("minimum password length 12 → 8"), change("<!channel> `a` *b*\n<https://evil.example.com|here> & \u202e"),
		{Type: "event_log.auth", Project: "shop", Body: []byte{0xff, 0}},
		change(strings.Repeat("x", 10_000)),
	}
	require.NoError(t, sink.Deliver(t.Context(), events))
	require.Len(t, got, 1)
	lines := strings.Split(got[0], "\n")
	require.Equal(t, "high, weaker: shop/live password_strength_config: minimum password length 12 → 8", lines[0])
	require.Equal(t, "high, weaker: shop/live password_strength_config: &lt;!channel&gt; `a` *b* &lt;https:\u200b//evil.example.com|here&gt; &amp;", lines[1])
	require.Equal(t, "`event_log.auth`: shop", lines[3])
	require.Len(t, []rune(lines[2]), maxLine)

	require.NoError(t, sink.Deliver(t.Context(), []relay.Event{{
		Type: "health.changed", Project: "shop", Environment: "live", Subject: "streaming_health",
		Body: []byte(`{"detail":{"summary":"live: event log is refused","severity":"critical","action":"mend\n<it>","runbook":"https://example.com/page"}}`),
	}}))
	require.Equal(t, "critical: shop/live streaming_health: live: event log is refused\n> to do: mend &lt;it&gt; https://example.com/page", got[1])

	require.NoError(t, sink.Deliver(t.Context(), []relay.Event{{
		Type: "streaming.changed", Project: "shop", Environment: "live", Subject: "event_log_streaming",
		Body: []byte(`{"detail":{"summary":"the event log now goes to ` + "`b`" + `","severity":"high","direction":"mixed","action":"FEWQBRSZLYEUDLWE5NRIRKYT7T"}}`),
	}}))
	require.Equal(t, "high, mixed: shop/live event_log_streaming: the event log now goes to `b`", got[2], "the id of an action is nothing to do")

	burst := relaytest.Events(100)
	burst[99] = change("hidden by a burst")
	require.NoError(t, sink.Deliver(t.Context(), burst))
	require.Contains(t, got[3], "high, weaker: shop/live password_strength_config: hidden by a burst\n")
	got = got[:3]

	require.NoError(t, sink.Deliver(t.Context(), relaytest.Events(100)))
	lines = strings.Split(got[3], "\n")
	require.Len(t, lines, maxLines+1)
	require.Equal(t, fmt.Sprintf("… and %d more events", 100-maxLines), lines[maxLines])
	_, err = New(config.Webhook{URL: secret.New(receiver.URL)}, Options{Format: "smoke"})
	require.ErrorContains(t, err, `format: "smoke"`)
}

// Whoever may push can write bodies like those of the trail, and as many as they like. Nothing
// of a body is shown, and no number of pushes hides an entry.
func TestAPushedEventIsNeverShownAsAnEntry(t *testing.T) {
	t.Parallel()
	var got []string
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var message struct{ Text string }
		if json.NewDecoder(r.Body).Decode(&message) == nil {
			got = append(got, message.Text)
		}
	}))
	t.Cleanup(receiver.Close)
	sink, err := New(config.Webhook{URL: secret.New(receiver.URL)}, Options{Format: "slack"})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, sink.Close()) })
	body := func(summary, severity string) []byte {
		return []byte(`{"detail":{"summary":"` + summary + `","severity":"` + severity + `","direction":"weaker","action":"call +1 900","runbook":"https://evil.example.com"}}`)
	}
	real := relay.Event{
		ID: "trail@7", Source: relay.TrailSource, Type: "settings.changed", Project: "shop", Environment: "live",
		Subject: "rbac_policy", Body: body("@channel see [here](https://evil.example.com)", "low"),
	}
	imitation := relay.Event{
		ID: "trail@8", Source: relay.SourceOf("shop", "live"), Type: "event_log.settings.changed", Project: "shop", Environment: "live",
		Body: body("all is well <!channel>", "critical"),
	}
	odd := imitation
	odd.Type = "event_log.@here`<!channel>`https://evil.example.com\n*x*"
	var events []relay.Event
	for range 60 {
		events = append(events, imitation)
	}
	events = append(events, odd, real)
	require.NoError(t, sink.Deliver(t.Context(), events))
	lines := strings.Split(got[0], "\n")
	require.Equal(t, "low, weaker: shop/live rbac_policy: @\u200bchannel see [here]\u200b(https:\u200b//evil.example.com)", lines[0])
	require.Len(t, lines, maxLines+1)
	require.Equal(t, "… and 42 more events", lines[maxLines])
	for _, line := range lines[1:maxLines] {
		require.Equal(t, "`event_log.settings.changed`: shop/live", line)
	}
	require.NoError(t, sink.Deliver(t.Context(), []relay.Event{odd}))
	require.Equal(t, "`event_log.@\u200bhere'&lt;!channel&gt;'https:\u200b//evil.example.com *x*`: shop/live", got[1])

	// If there are more entries than a message usually has, all of them are shown. If they are
	// too long for one message, the pump halves the delivery.
	many := make([]relay.Event, 70)
	for i := range many {
		many[i] = real
	}
	require.NoError(t, sink.Deliver(t.Context(), append(many, imitation)))
	lines = strings.Split(got[2], "\n")
	require.Len(t, lines, 71)
	require.Equal(t, "… and 1 more events", lines[70])
	for i := range many {
		many[i].Body = body(strings.Repeat("&", 1000), "low")
	}
	err = sink.Deliver(t.Context(), many)
	require.True(t, relay.IsPermanent(err), "%v", err)
	require.NoError(t, sink.Deliver(t.Context(), many[:1]), "a single one always fits")
}
