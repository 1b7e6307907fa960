package cli

import (
	"bufio"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/cloudevents"
	"github.com/auditrelay/auditrelay/internal/console"
	"github.com/auditrelay/auditrelay/internal/plaintext"
	"github.com/auditrelay/auditrelay/relay"
)

func tappedOf(body string) *console.Tapped {
	e := relay.Event{
		ID: "e-1", Source: "/projects/p/environments/live", Type: "event_log.login", Project: "p", Environment: "live",
		Received: time.Date(2026, 3, 4, 10, 30, 1, 5e6, time.UTC), ContentType: "application/json", Body: []byte(body),
	}
	return &console.Tapped{CloudEvent: cloudevents.AppendJSON(nil, &e), Labels: []console.Label{{Name: "app", Value: "idp\x1b[2J"}}}
}

func TestTappedEventsForPeople(t *testing.T) {
	t.Parallel()
	var out, told strings.Builder
	x := tapping{out: bufio.NewWriter(&out), told: &told, limit: 2, output: outputFlag{value: "text"}}
	require.NoError(t, x.show(tappedOf("{\"a\":\n  \"\u202e\"}")))
	assert.Equal(t, `10:30:01.005  p/live  event_log.login  e-1  {"a": "·"}  app="idp\x1b[2J"`+"\n", out.String())
	out.Reset()
	x.width, x.brush = 30, brush{true}
	require.ErrorIs(t, x.show(tappedOf(`{}`)), errLimit)
	line := uncoloured(t, []string{strings.TrimSuffix(out.String(), "\n")})[0]
	assert.Equal(t, "10:30:01.005  p/live  event_l…", line)
	assert.Equal(t, 30, utf8.RuneCountInString(line))
	assert.False(t, strings.ContainsFunc(line, plaintext.Steers))
	out.Reset()
	x.output.value = "json"
	require.NoError(t, x.show(tappedOf(`{"a":1}`)))
	e, err := cloudevents.ParseJSON([]byte(out.String()))
	require.NoError(t, err)
	assert.Equal(t, `{"a":1}`, string(e.Body))

	x.count(&console.TapCounts{Shown: 3, Dropped: 4})
	assert.Equal(t, "4 events passed unseen, as they came faster than they were printed\n", told.String())
	x.count(&console.TapCounts{Shown: 3, Dropped: 5})
	assert.Equal(t, 1, strings.Count(told.String(), "\n"), "it says so now and then")
}
