package cloudevents_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/routing/cloudevents"
	"github.com/auditrelay/auditrelay/relay"
)

func FuzzParseJSON(f *testing.F) {
	for _, body := range []string{`{"a": [1,2 ]}`, `{"a":1}`, "line\nend", "\xff", "", " {}", "null", `"text"`} {
		f.Add(body, "application/json", `{"specversion":"1.0","id":"1","source":"s","data":{}}`)
		f.Add(body, "text/plain", `{"specversion":"1.0","id":"1","source":"s","data_base64":"AA=="}`)
	}
	f.Fuzz(func(t *testing.T, body, contentType, line string) {
		_, _ = cloudevents.ParseJSON([]byte(line)) // no panic
		e := relay.Event{
			ID: "id", Source: "/projects/p/environments/e", Type: "event_log", Project: "p", Environment: "e",
			Time: time.Unix(5, 7).UTC(), Received: time.Unix(6, 1).UTC(), ContentType: contentType, Body: []byte(body),
		}
		back, err := cloudevents.ParseJSON(cloudevents.AppendJSON(nil, &e))
		require.NoError(t, err)
		assert.Equal(t, body, string(back.Body))
		assert.Equal(t, e.Received, back.Received)
		assert.Equal(t, e.ID, back.ID)
	})
}

func TestWhatIsNoEventOfOurs(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`{`: "unexpected EOF",
		`{"specversion":"0.3","id":"1","source":"s"}`:                                           "specversion",
		`{"specversion":"1.0","source":"s"}`:                                                    "no id",
		`{"specversion":"1.0","id":"1","source":"s","data":1,"data_base64":"AA=="}`:             "both",
		`{"specversion":"1.0","id":"1","source":"s","datacontenttype":"text/plain","data":{}}`:  "no JSON string",
		`{"specversion":"1.0","id":"1","source":"s"}` + "\n" + `{"specversion":"1.0","id":"2"}`: "more follows",
	} {
		_, err := cloudevents.ParseJSON([]byte(text))
		assert.ErrorContains(t, err, want, text)
	}
}

// Some readers take the first of two members with one name, some the last, and some know names
// in any case.
func TestAnEventThatReadersUnderstandDifferently(t *testing.T) {
	t.Parallel()
	for member, want := range map[string]string{
		`"id":"1"`: "twice", `"typ\u0065":"x"`: "twice", `"data":{}`: "twice", `"Type":"x"`: "spelled", `"\u017fource":"x"`: "spelled",
		`"other":1,"other":2`: "", `"data_base64":null`: "",
	} {
		_, err := cloudevents.ParseJSON([]byte(`{"specversion":"1.0","id":"1","source":"s","type":"x","data":{"id":1,"id":2,"Type":3},` + member + `}`))
		if want == "" {
			assert.NoError(t, err, member)
			continue
		}
		assert.ErrorIs(t, err, cloudevents.ErrAmbiguous, member)
		assert.ErrorContains(t, err, want, member)
	}
}
