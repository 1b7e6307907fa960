package routing

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/relay"
)

// Many readers take more than JSON, and programs write it: a text with such an object is
// replaced too.
func TestATextThatIsAlmostJSONIsReplaced(t *testing.T) {
	t.Parallel()
	r := rules(t, "/user/email /sessions/*/ip", "/user/id")
	for what, text := range map[string]string{
		"not a number":             `{"score":NaN,"user":{"email":"hunter2"}}`,
		"infinite":                 `got {"score":-Infinity,"user":{"email":"hunter2"}}`,
		"a line break in a string": "{\"m\":\"a\nb\",\"user\":{\"email\":\"hunter2\"}}",
		"a tab in a string":        "{\"m\":\"a\tb\",\"user\":{\"email\":\"hunter2\"}}",
		"an unknown escape":        `{"m":"a\x41","user":{"email":"hunter2"}}`,
		"single quotes":            `event={'user': {'email': 'hunter2'}}`,
		"single quotes, to hash":   `{'ok': True, 'user': {'id': 'hunter2'}}`,
		"a comment":                `{/* who */"user":{"email":"hunter2"}}`,
		"a leading comma":          `{,"user":{"email":"hunter2"}}`,
		"words of Python":          `{"ok":True,"user":{"email":"hunter2"}}`,
		"a number of JSON5":        `{"n":.5,"user":{"email":"hunter2"}}`,
		"a list":                   `{"ok":True,"sessions":[{"ip":"hunter2"}]}`,
		"escaped":                  `x={\"score\":NaN,\"user\":{\"email\":\"hunter2\"}}`,
		"in other letters":         `{'ＵＳＥＲ': {'Email': 'hunter2'}}`,
		"in a URL":                 "https://example.com/?state=%7B%22user%22%3A%7B%22email%22%3A%22hunter2%22%7D%7D&x=1",
		"in a form":                "state=%7b%22user%22:+%7b%22email%22:+%22hunter2%22%7d%7d",
		"in a URL in a URL":        "to=%257B%2522user%2522%253A%257B%2522email%2522%253A%2522hunter2%2522%257D%257D",
		"cut off in a URL":         "state=%7B%22user%22%3A%7B%22email%22%3A%22hunt",
	} {
		got, changed, err := r.apply([]byte(`{"a":` + quoted(text) + `}`))
		require.NoError(t, err, what)
		assert.True(t, changed, what)
		assert.Equal(t, `{"a":"[redacted]"}`, string(got), what)
	}
	got, _, err := r.apply([]byte(`{"user":` + quoted(`{'email': 'hunter2'}`) + `}`))
	require.NoError(t, err)
	assert.Equal(t, `{"user":"[redacted]"}`, string(got))
	assert.Empty(t, r.keepLabels([]relay.Label{{Name: "said", Value: `{'user': {'email': 'hunter2'}}`}}))
	for _, text := range []string{`{'user': 'x'}`, `{user} changed email`, `{x} the "user" did`, `{'sessions': []}`, `{"email": NaN}`, `100%7B`, `100% of 7b`, `%7B%22email%22:1%7D`, `%7Bx%7`} {
		_, changed, err := r.apply([]byte(`{"a":` + quoted(text) + `}`))
		require.NoError(t, err, text)
		assert.False(t, changed, text)
	}
}

// An invisible character between a letter and its mark does not hide a name.
func TestAMarkIsFoundBehindWhatIsInvisible(t *testing.T) {
	t.Parallel()
	for _, pointer := range []string{"/größe", "/gro\u0308ße"} {
		for _, name := range []string{"größe", "gro\u0308ße", "gro\u200b\u0308ße", "gro\u034f\u0308ße", "GRO\u00ad\u0308SSE", "ｇｒｏ\u2060\u0308ſſe"} {
			got, _, err := rules(t, pointer, "").apply([]byte(`{"` + name + `":"hunter2"}`))
			require.NoError(t, err)
			assert.Equal(t, `{}`, string(got), "%q", name)
		}
	}
}
