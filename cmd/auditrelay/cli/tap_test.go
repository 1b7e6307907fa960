package cli

import (
	"bufio"
	"encoding/json"
	"io"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/control/console"
	"github.com/auditrelay/auditrelay/internal/plaintext"
	"github.com/auditrelay/auditrelay/internal/routing/cloudevents"
	"github.com/auditrelay/auditrelay/relay"
)

func tappedOf(body string) *console.Tapped {
	e := relay.Event{
		ID: "e-1", Source: "/projects/p/environments/live", Type: "event_log.login", Project: "p", Environment: "live",
		Received: time.Date(2026, 3, 4, 10, 30, 1, 5e6, time.UTC), ContentType: "application/json", Body: []byte(body),
	}
	return &console.Tapped{CloudEvent: cloudevents.AppendJSON(nil, &e), Labels: []relay.Label{{Name: "app", Value: "idp\x1b[2J"}}}
}

func TestTappedEventsForPeople(t *testing.T) {
	t.Parallel()
	var out, told strings.Builder
	x := tapping{out: bufio.NewWriter(&out), told: &told, limit: 2, width: unbounded, output: outputFlag{value: "text"}}
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

// Nothing of a stranger's text steers a terminal, in any output. JSON stays JSON, with the
// same meaning.
func TestNoStrangersTextSteersTheTerminal(t *testing.T) {
	t.Parallel()
	const hostile = "\u009b31m\u202e\x7f\u2066\U000e0041é😀"
	steers := func(text string) bool {
		return strings.ContainsFunc(text, func(r rune) bool { return r != '\n' && r != '\t' && plaintext.Steers(r) })
	}
	var out strings.Builder
	x := tapping{out: bufio.NewWriter(&out), told: io.Discard, output: outputFlag{value: "json"}}
	body := `{"a":"` + hostile + `"}`
	require.NoError(t, x.show(tappedOf(body)))
	require.False(t, steers(out.String()), "%q", out.String())
	e, err := cloudevents.ParseJSON([]byte(out.String()))
	require.NoError(t, err)
	require.JSONEq(t, body, string(e.Body))

	letter := &console.Letter{Reason: hostile}
	letter.Labels, letter.Body = []relay.Label{{Name: "n", Value: hostile}}, []byte("\x1b]0;x\x07 "+hostile+"\r\n{}")
	out.Reset()
	require.NoError(t, encodeLine(&out, letter))
	require.False(t, steers(out.String()), "%q", out.String())
	var again console.Letter
	require.NoError(t, json.Unmarshal([]byte(out.String()), &again))
	require.Equal(t, letter.Reason, again.Reason)
	require.Equal(t, letter.Body, again.Body)
	out.Reset()
	require.NoError(t, show(&out, letter, showLetter))
	require.False(t, steers(out.String()), "%q", out.String())
	require.Contains(t, out.String(), `\u001b]0;x\u0007 \u009b31m\u202e\u007f\u2066\udb40\udc41é😀\u000d`+"\n{}")
}
