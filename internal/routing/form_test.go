package routing

import (
	"encoding/json"
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/relay"
	"github.com/auditrelay/auditrelay/relay/relaytest"
)

// An event is chosen by its body as received, redacted, and then given its form. The event that
// was passed in stays as it was, and one that cannot be redacted is withheld.
func TestFormComesLast(t *testing.T) {
	t.Parallel()
	r, err := New(&config.Match{CEL: `!has(body.n) || body.n != 1`}, &config.Redact{Remove: []string{"/email"}},
		Options{Logger: slog.New(slog.DiscardHandler), OCSF: true})
	require.NoError(t, err)
	events := numbered(3)
	events = append(events, relay.Event{ID: "text", Body: []byte("text")})
	given := string(events[0].Body)
	var inner relaytest.Sink
	err = r.Wrap(&inner).Deliver(t.Context(), events)
	var partial *relay.PartialError
	require.ErrorAs(t, err, &partial)
	require.Len(t, partial.Failures, 1)
	assert.Equal(t, 3, partial.Failures[0].Index)
	arrived := inner.Arrived()
	require.Len(t, arrived, 2)
	for i, want := range []string{`{"n":0}`, `{"n":2}`} {
		var object map[string]any
		require.NoError(t, json.Unmarshal(arrived[i].Body, &object))
		assert.Equal(t, want, object["raw_data"])
	}
	assert.Equal(t, "application/json", arrived[1].ContentType)
	assert.Equal(t, given, string(events[0].Body))
}

// A form alone is enough to need a route, and a check names it.
func TestFormAlone(t *testing.T) {
	t.Parallel()
	r, err := New(nil, nil, Options{OCSF: true})
	require.NoError(t, err)
	var inner relaytest.Sink
	sink := r.Wrap(&inner)
	require.NoError(t, sink.Deliver(t.Context(), numbered(2)))
	assert.Len(t, inner.Arrived(), 2)
	assert.True(t, strings.HasPrefix(string(inner.Arrived()[1].Body), OCSFStart))
	var found string
	require.NoError(t, sink.(*Sink).Check(t.Context(), func(what, is string) { found = what + ": " + is }))
	assert.Equal(t, "format: OCSF 1.9.0", found)
}
