package routing

import (
	"context"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/relay"
	"github.com/auditrelay/auditrelay/relay/relaytest"
)

// A trial says what a delivery does, and why.
func TestATrialIsADelivery(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		match  *config.Match
		redact *config.Redact
		want   Trial
		body   string // of the event for the sink
	}{
		"nothing configured":  {want: Trial{Delivered: true}, body: `{"n":1,"email":"a@b"}`},
		"another type":        {match: &config.Match{Types: []string{"audit.*"}}, want: Trial{Reason: `match.types has nothing for "event_log.login"`}},
		"another project":     {match: &config.Match{Projects: []string{"q"}}, want: Trial{Reason: `match.projects has nothing for "p"`}},
		"another environment": {match: &config.Match{Environments: []string{"q"}}, want: Trial{Reason: `match.environments has nothing for "live"`}},
		"false":               {match: &config.Match{CEL: "body.n == 2"}, want: Trial{Reason: "match.cel is false: body.n == 2"}},
		"true":                {match: &config.Match{CEL: "body.n == 1"}, want: Trial{Delivered: true}, body: `{"n":1,"email":"a@b"}`},
		"fails": {
			match: &config.Match{CEL: "body.x == 1"}, body: `{"n":1,"email":"a@b"}`,
			want: Trial{Delivered: true, Reason: "match.cel fails for it, and match.on_error delivers it all the same: column 5: there is no such key; test for it with has()"},
		},
		"fails, withheld": {
			match: &config.Match{CEL: "body.x == 1", OnError: "withhold"},
			want:  Trial{Withheld: true, Reason: "match.cel fails for it, and so it is withheld: column 5: there is no such key; test for it with has()"},
		},
		"redacted": {redact: &config.Redact{Remove: []string{"/email"}}, want: Trial{Delivered: true, Changed: true}, body: `{"n":1}`},
	} {
		route, err := New(c.match, c.redact, Options{Logger: slog.New(slog.DiscardHandler)})
		require.NoError(t, err, name)
		e := relay.Event{ID: "e", Type: "event_log.login", Project: "p", Environment: "live", Body: []byte(`{"n":1,"email":"a@b"}`)}
		got := route.Try(e)
		assert.Equal(t, `{"n":1,"email":"a@b"}`, string(e.Body), "%s: the event is left as it was", name)
		if c.want.Delivered {
			assert.Equal(t, c.body, string(got.Event.Body), name)
		}
		var sink relaytest.Sink
		err = route.Wrap(&sink).Deliver(context.Background(), []relay.Event{e})
		assert.Equal(t, got.Withheld, err != nil, name)
		if delivered := sink.Arrived(); assert.Len(t, delivered, map[bool]int{true: 1}[got.Delivered], name) && got.Delivered {
			assert.Equal(t, delivered[0], got.Event, name)
		}
		got.Event = relay.Event{}
		assert.Equal(t, c.want, got, name)
	}
}
