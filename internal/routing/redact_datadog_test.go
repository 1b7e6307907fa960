package routing

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/wire"
	"github.com/auditrelay/auditrelay/relay"
)

// entries keeps the decoded entries of a Datadog push.
type entries []relay.Event

func (e *entries) Entry(_ wire.Place, entry *wire.Entry) error {
	kept := relay.Event{Body: bytes.Clone(entry.Body)}
	for _, l := range entry.Labels {
		kept.Labels = append(kept.Labels, relay.Label{Name: strings.Clone(l.Name), Value: strings.Clone(l.Value)})
	}
	*e = append(*e, kept)
	return nil
}

func (e *entries) Stream([]relay.Label) error { return nil }

func (e *entries) Refuse(p wire.Problem) error { return p.Err }

// For any form of an entry, the value is removed or the event is withheld: in the body, and in
// the labels that are made from attributes when the body is the event inside.
func TestDatadogForms(t *testing.T) {
	t.Parallel()
	const event = `{"event_id":"e","user":{"email":"hunter2"}}`
	for name, c := range map[string]struct {
		push      string
		delivered bool
	}{
		"an event in the message":      {`{"message":` + quoted(event) + `}`, true},
		"attributes next to the event": {`{"message":` + quoted(event) + `,"user":{"email":"hunter2"},"user.email":"hunter2","User_Email":"hunter2","ddtags":"user.email:hunter2"}`, true},
		"an object as the message":     {`{"message":` + event + `}`, true},
		"no message":                   {event, true},
		"a leading space":              {`{"message":` + quoted(" "+event) + `}`, true},
		"two messages":                 {`{"message":` + quoted(event) + `,"message":"x"}`, true},
		"two objects":                  {`{"message":` + event + `,"message":` + event + `}`, true},
		"no event_id":                  {`{"message":` + quoted(secretUser) + `}`, true},
		"tags next to a text":          {`{"message":"plain","ddtags":"team:iam, user.email:hunter2"}`, true},
		"a list of tags":               {`{"message":"plain","DDTags":["team:iam","user_email:hunter2"]}`, true},
		"tags with JSON":               {`{"message":"plain","ddtags":"x:y,user:{\"email\":\"hunter2\"}"}`, true},
		"tags in a message":            {`{"message":"{\"ddtags\":\"USER.EMAIL:hunter2\"}"}`, true},
		"tags in an object":            {`{"message":{"ddtags":"user.email:hunter2"}}`, true},
		"an array as the message":      {`{"message":[` + quoted(event) + `]}`, true},
	} {
		var got entries
		require.NoError(t, wire.DecodeDatadog([]byte(c.push), wire.DatadogLimits{Labels: wire.LabelLimit{Count: 100, Bytes: 1 << 20}, Line: 1 << 20}, &got), name)
		require.Len(t, got, 1, name)
		r, err := newRedaction(config.Redact{Remove: []string{"/user/email"}})
		require.NoError(t, err)
		body, _, err := r.apply(got[0].Body)
		assert.Equal(t, c.delivered, err == nil, "%s: %v", name, err)
		assert.NotContains(t, string(body), "hunter2", name)
		assert.NotContains(t, fmt.Sprint(r.keepLabels(got[0].Labels)), "hunter2", name)
	}
}

// Tags with nothing to redact stay as they are.
func TestOtherTagsStay(t *testing.T) {
	t.Parallel()
	r := rules(t, "/user/email", "/user/id")
	for _, body := range []string{
		`{"ddtags":"team:iam,email:x,user:7,mail:user.email","message":"plain"}`, `{"ddtags":"","message":"x"}`, `{"tags":"user.email:x"}`, `{"a":{"ddtags":"user.email:x"}}`,
	} {
		got, changed, err := r.apply([]byte(body))
		require.NoError(t, err)
		assert.False(t, changed, "%s", got)
	}
}

func TestMissingPointers(t *testing.T) {
	t.Parallel()
	r, err := newRedaction(config.Redact{Remove: []string{"/user/email", "/sessions/*/ip"}, Missing: "withhold"})
	require.NoError(t, err)
	for body, want := range map[string]string{
		`{"user":{"email":1},"sessions":[{"ip":1}]}`:             "",
		`{"user":{"email":1},"message":{"sessions":[{"ip":1}]}}`: "",
		`{"user":{"email":1},"sessions":[]}`:                     "/sessions/*/ip names nothing in it, and missing is withhold",
		`{"sessions":[{"ip":1}],"user":{}}`:                      "/user/email names nothing in it, and missing is withhold",
	} {
		_, _, err := r.apply([]byte(body))
		if want == "" {
			assert.NoError(t, err, body)
			continue
		}
		assert.EqualError(t, err, want, body)
	}
}

// redaction.keepLabels never writes to the labels it is given. It returns them if there is nothing to
// remove.
func TestRedactedLabels(t *testing.T) {
	t.Parallel()
	r := rules(t, "/user/email /sessions/*/ip", "/user/id")
	given := []relay.Label{{Name: "host", Value: "h"}, {Name: "user", Value: "plain"}, {Name: "email", Value: "x"}, {Name: "text", Value: "{not JSON"}}
	assert.Same(t, &given[0], &r.keepLabels(given)[0])
	for _, l := range []relay.Label{
		{Name: "USER.EMAIL", Value: "x"},
		{Name: "user", Value: ` {"email":"x"}`},
		{Name: "any", Value: `{"user":{"email":"x"}}`},
		{Name: "sessions.0.ip", Value: "x"},
		{Name: "sessions", Value: `[{"ip":1}]`},
		{Name: "user", Value: quoted(`{"email":"x"}`)},
	} {
		assert.Empty(t, r.keepLabels([]relay.Label{l}), "%v", l)
	}
	hashed := r.keepLabels([]relay.Label{{Name: "user_id", Value: "7"}})
	assert.Equal(t, mac("7"), `"`+hashed[0].Value+`"`)
}
