package web

import (
	"net/http/httptest"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/control/console"
	"github.com/auditrelay/auditrelay/internal/routing/cloudevents"
	"github.com/auditrelay/auditrelay/relay"
)

// Events of a mebibyte in each field, with markup, turned directions and bytes that are no text, make
// a page of a bounded size, whose lines are those of a stream.
func TestHostileLiveEvents(t *testing.T) {
	t.Parallel()
	c, _ := serve(t)
	long := hostile + "\u202egnp.exe\x00\r\revent: over\r\n" + strings.Repeat("W", 1<<20)
	var live sample
	for range liveShown + 3 {
		e := relay.Event{ID: long, Type: long, Source: "/x", Project: long, Environment: long, Time: time.Unix(1, 0), Received: time.Unix(1, 0), Body: []byte(long + "\xff\xc3")}
		require.NoError(t, live.add(&console.Tapped{CloudEvent: cloudevents.AppendJSON(nil, &e)}))
	}
	require.Len(t, live.Events, liveShown)
	w := httptest.NewRecorder()
	require.NoError(t, c.sendSample(newEventStream(w), live, ""))
	body := w.Body.String()
	assert.Less(t, len(body), 400_000)
	assert.True(t, utf8.ValidString(body))
	assert.NotContains(t, body, "<script")
	assert.NotContains(t, body, "\x00")
	assert.NotContains(t, body, "\u202e", "it turns the direction of text")
	for line := range strings.SplitSeq(strings.ReplaceAll(strings.TrimSpace(body), "\r", "\n"), "\n") {
		require.True(t, strings.HasPrefix(line, "data: ") || line == "retry: 2000", line)
	}
}
