package redact

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// quoted is text as a JSON string.
func quoted(text string) string {
	out, _ := json.Marshal(text)
	return string(out)
}

const secretUser = `{"user":{"email":"hunter2"}}`

// If a text may be JSON to some reader, and a pointer leads into it, the event is
// withheld unless the value can be removed in place.
func TestWhatCouldHideIsWithheld(t *testing.T) {
	t.Parallel()
	r := rules(t, "/user/email", "/user/id")
	for what, body := range map[string]string{
		"a string":                     quoted(secretUser),
		"an array":                     "[" + secretUser + "]",
		"text":                         "user.email=hunter2",
		"a byte order mark":            "\ufeff" + secretUser,
		"trailing data":                secretUser + secretUser,
		"text in the message":          `{"message":` + quoted(secretUser) + `,"ddsource":"x"}`,
		"a leading space":              `{"message":` + quoted(" "+secretUser) + `}`,
		"a leading escape":             `{"message":"\u007b` + quoted(secretUser)[2:] + `}`,
		"a leading byte order mark":    `{"message":` + quoted("\ufeff"+secretUser) + `}`,
		"two messages":                 `{"message":` + quoted(secretUser) + `,"message":"y"}`,
		"text anywhere":                `{"a":[1,{"b":` + quoted(secretUser) + `}]}`,
		"text in text":                 `{"a":` + quoted(quoted(secretUser)) + `}`,
		"text on the way":              `{"user":` + quoted(`{"email":"hunter2"}`) + `}`,
		"text in text on the way":      `{"user":` + quoted(quoted(`{"email":"hunter2"}`)) + `}`,
		"lines in text":                `{"a":` + quoted("{}\n"+secretUser) + `}`,
		"text that is cut off":         `{"a":` + quoted(secretUser[:len(secretUser)-2]) + `}`,
		"another case in text":         `{"a":` + quoted(strings.ReplaceAll(secretUser, "email", "EMail")) + `}`,
		"a value that is to be hashed": `{"a":` + quoted(`{"user":{"id":"hunter2"}}`) + `}`,
		"invalid UTF-8":                "{\"a\":\"\xff\",\"user\":{\"email\":\"hunter2\"}}",
	} {
		got, changed, err := r.Apply([]byte(body))
		if !assert.Error(t, err, "%s: %s", what, got) {
			continue
		}
		assert.Nil(t, got, what)
		assert.False(t, changed, what)
		assert.NotContains(t, err.Error(), "hunter2", what)
	}
}

func TestWhatHidesNothingIsDelivered(t *testing.T) {
	t.Parallel()
	r := rules(t, "/user/email", "/user/id")
	for _, body := range []string{
		`{}`,
		`{"a":"[ERROR] user said {hello}","b":"{name} logged in","c":"{"}`,
		`{"a":` + quoted(`{"user":{"name":"x"},"email":"y"}`) + `}`,
		`{"a":` + quoted(`["user","email"]`) + `,"b":"\"quoted\"","c":"\ud83d is half"}`,
		`{"email":"x","users":{"email":"y"},"message":{"email":"z"}}`,
		`{"data":{"user":{"email":"it is another place"}}}`,
	} {
		got, changed, err := r.Apply([]byte(body))
		require.NoError(t, err, body)
		assert.False(t, changed, body)
		assert.Equal(t, body, string(got))
	}
}

// A Datadog entry may hold its event as an object. Readers differ in the case of the
// names they know, and in their choice between two equal names.
func TestMoreIsTakenRatherThanLess(t *testing.T) {
	t.Parallel()
	r := rules(t, "/user/email", "/user/id")
	for body, want := range map[string]string{
		`{"message":{"user":{"email":"hunter2","n":1}},"ddsource":"x"}`: `{"message":{"user":{"n":1}},"ddsource":"x"}`,
		`{"User":{"EMAIL":"hunter2","n":1}}`:                            `{"User":{"n":1}}`,
		`{"u\u0073er":{"Ema\u0131l":1,"e\u004dail":"hunter2"}}`:         `{"u\u0073er":{"Ema\u0131l":1}}`,
		`{"uſer":{"email":"hunter2"}}`:                                  `{"uſer":{}}`,
		`{"user":{"email":"hunter2"},"user":{"email":"hunter2"}}`:       `{"user":{},"user":{}}`,
		`{"message":{"user":{"id":"x"}}}`:                               `{"message":{"user":{"id":` + mac("x") + `}}}`,
	} {
		got, changed, err := r.Apply([]byte(body))
		require.NoError(t, err, body)
		assert.True(t, changed, body)
		assert.Equal(t, want, string(got))
	}
}
