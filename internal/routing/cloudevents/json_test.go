package cloudevents

import (
	"bytes"
	"encoding/base64"
	"strings"
	"testing"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/jsontext"
	"github.com/auditrelay/auditrelay/relay"
	"github.com/auditrelay/auditrelay/relay/relaytest"
)

func TestBodyForms(t *testing.T) {
	t.Parallel()
	nested := func(depth int) string { return strings.Repeat("[", depth) + strings.Repeat("]", depth) }
	deepest, deeper := nested(jsontext.MaxDepth), nested(jsontext.MaxDepth+1)
	for _, c := range []struct{ contentType, body, want string }{
		{"application/json", `{"a":1.0}`, `"data":{"a":1.0}`},
		{"application/json", `"é\u0041"`, `"data":"é\u0041"`},
		{"application/vnd.x+JSON; charset=utf-8", `[]`, `"data":[]`},
		{"", `[]`, `"data":[]`},
		{"application/json", deepest, `"data":` + deepest},
		{"application/json", deeper, `"data_base64":"` + base64.StdEncoding.EncodeToString([]byte(deeper)) + `"`},
		{"application/json", ` {}`, `"data_base64":"IHt9"`},
		{"application/json", "{}\n", `"data_base64":"e30K"`},
		{"application/json", "{", `"data_base64":"ew=="`},
		{"application/json", "\"\xff\"", `"data_base64":"Iv8i"`},
		{"text/plain", "a\r\nb\u2028\"", `"data":"a\u000d\nb\u2028\""`},
		{"text/plain", "\xff", `"data_base64":"/w=="`},
	} {
		e := relaytest.Events(1)[0]
		e.ContentType, e.Body = c.contentType, []byte(c.body)
		line := string(AppendJSON(nil, &e))
		assert.True(t, strings.HasSuffix(line, ","+c.want+"}"), "%q: %s", c.body, line)
		assert.True(t, strings.HasPrefix(line, Start), line)
	}
	e := relay.Event{ID: "1", Body: []byte{}}
	assert.NotContains(t, string(AppendJSON(nil, &e)), "data")
	assert.True(t, bytes.HasPrefix(AppendJSON(nil, &relay.Event{}), []byte(Start)))
}

// CloudEvents' own SDK for Go reads the output and finds it valid.
func TestTheSDKReadsIt(t *testing.T) {
	t.Parallel()
	for contentType, body := range map[string]string{
		"application/json": `{"a": 1.0, "é": "\u00e9", "deep": [1, {"b": null}]}`, "application/x+json": " {}\n",
		"text/plain": "two\nlines \u2028 \"é\"", "application/octet-stream": "\xff\x00", "": "[]",
	} {
		e := relaytest.Events(1)[0]
		e.Subject, e.ContentType, e.Body = "user \"1\"", contentType, []byte(body)
		var got event.Event
		require.NoError(t, got.UnmarshalJSON(AppendJSON(nil, &e)), contentType)
		require.NoError(t, got.Validate(), contentType)
		assert.Equal(t, []string{e.ID, e.Source, e.Type, e.Subject}, []string{got.ID(), got.Source(), got.Type(), got.Subject()})
		assert.True(t, e.Time.Equal(got.Time()))
		assert.Equal(t, e.ContentType, got.DataContentType())
		assert.Equal(t, e.Project, got.Extensions()["project"])
		assert.Equal(t, e.Environment, got.Extensions()["environment"])
		if contentType == "text/plain" {
			var text string
			require.NoError(t, got.DataAs(&text))
			assert.Equal(t, body, text)
			continue
		}
		assert.Equal(t, body, string(got.Data()), contentType)
	}
}

// An Encoder writes what each event's Attributes say, whatever came before: nothing of one push
// appears in the next one's events.
func TestEncoderFollowsAttributes(t *testing.T) {
	t.Parallel()
	var x Encoder
	e := relaytest.Events(1)[0]
	for _, change := range []func(){
		func() {},
		func() { e.ID, e.Type, e.Subject = "2", "settings.changed", "user \"1\"" },
		func() { e.Time = e.Time.Add(time.Millisecond) },
		func() { e.Received = e.Received.Add(time.Second) },
		func() { e.Received = e.Received.In(time.FixedZone("", 3600)) },
		func() { e.Source += "\n" },
		func() { e.Project += "x" },
		func() { e.Environment += "x" },
		func() { e.Environment, e.Subject = "", "" },
		func() { e.ContentType = "text/plain" },
		func() { e = relay.Event{} },
	} {
		change()
		want := []byte{'{'}
		member := func(name, value string) bool {
			want = append(append(want, `"`+name+`":`...), jsontext.AppendString(nil, value)...)
			want = append(want, ',')
			return true
		}
		e.Attributes(member)
		if e.ContentType != "" {
			member("datacontenttype", e.ContentType)
		}
		got := string(x.Append(nil, &e))
		got, _, _ = strings.Cut(got, `,"data":`)
		assert.Equal(t, strings.TrimSuffix(string(want), ","), strings.TrimSuffix(got, "}"))
	}
}
