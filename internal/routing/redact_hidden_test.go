package routing

import (
	"encoding/json"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/relay"
)

// quoted returns text as a JSON string.
func quoted(text string) string {
	out, _ := json.Marshal(text)
	return string(out)
}

const secretUser = `{"user":{"email":"hunter2"}}`

// If the body itself cannot be read with certainty, the event is withheld.
func TestABodyThatIsNoObjectIsWithheld(t *testing.T) {
	t.Parallel()
	r := rules(t, "/user/email", "/user/id")
	for what, body := range map[string]string{
		"a string":          quoted(secretUser),
		"an array":          "[" + secretUser + "]",
		"text":              "user.email=hunter2",
		"a byte order mark": "\ufeff" + secretUser,
		"trailing data":     secretUser + secretUser,
		"invalid UTF-8":     "{\"a\":\"\xff\",\"user\":{\"email\":\"hunter2\"}}",
	} {
		got, changed, err := r.apply([]byte(body))
		if !assert.Error(t, err, "%s: %s", what, got) {
			continue
		}
		assert.Nil(t, got, what)
		assert.False(t, changed, what)
		assert.NotContains(t, err.Error(), "hunter2", what)
	}
}

// If a text may be JSON to some reader, or contain it, and a pointer leads into it, the text is
// replaced and the event is delivered.
func TestATextWithAHiddenValueIsReplaced(t *testing.T) {
	t.Parallel()
	r := rules(t, "/user/email", "/user/id")
	inText := func(text string) string { return `{"a":` + quoted(text) + `,"b":1}` }
	const replaced = `{"a":"[redacted]","b":1}`
	for what, body := range map[string]string{
		"plain":                  inText(secretUser),
		"a leading space":        inText(" " + secretUser),
		"a byte order mark":      inText("\ufeff" + secretUser),
		"a leading escape":       `{"a":"\u007b` + quoted(secretUser)[2:] + `,"b":1}`,
		"an escape in capitals":  `{"a":"x \u007B` + quoted(secretUser)[2:] + `,"b":1}`,
		"text in text":           inText(quoted(secretUser)),
		"lines":                  inText("{}\n" + secretUser),
		"cut off":                inText(secretUser[:len(secretUser)-2]),
		"another case":           inText(strings.ReplaceAll(secretUser, "email", "EMail")),
		"full width":             inText(strings.ReplaceAll(secretUser, "email", "ｅｍａｉｌ")),
		"flat":                   inText(`{"user.email":"hunter2"}`),
		"a value to be hashed":   inText(`{"user":{"id":"hunter2"}}`),
		"flat after a prefix":    inText(`said {"user.email":"hunter2"}`),
		"half a pair":            inText(`said {"user":{"ema\ud83dil":"hunter2"}}`),
		"a prefix":               inText("login failed: " + secretUser),
		"a prefix and a suffix":  inText("login failed: " + secretUser + " (3 times)"),
		"a prefix with brackets": inText("[ERROR] {x} {{ " + secretUser),
		"a broken object before": inText(`{"a":"x ` + secretUser),
		"a list":                 inText("[1," + secretUser + "]"),
		"a list after a prefix":  inText("got [" + secretUser + "]"),
		"quoted after a prefix":  inText("body=" + quoted(secretUser)),
		"quoted twice":           inText("body=" + quoted("x "+quoted(secretUser))),
		"quoted and cut off":     inText("body=" + quoted(secretUser)[:25]),
		"too many levels": inText(func() string {
			text := secretUser
			for range 14 {
				text = quoted(text)
			}
			return text
		}()),
		"too many braces": inText(strings.Repeat(`{"a":`, 2000) + secretUser),
	} {
		got, changed, err := r.apply([]byte(body))
		require.NoError(t, err, what)
		assert.True(t, changed, what)
		assert.Equal(t, replaced, string(got), what)
	}
	for body, want := range map[string]string{
		`{"user":` + quoted(`{"email":"hunter2"}`) + `}`:                    `{"user":"[redacted]"}`,
		`{"user":` + quoted(quoted(`{"email":"hunter2"}`)) + `}`:            `{"user":"[redacted]"}`,
		`{"user":` + quoted(`mail {"email":"hunter2"}`) + `,"c":[]}`:        `{"user":"[redacted]","c":[]}`,
		`{"message":` + quoted(secretUser) + `,"message":"y"}`:              `{"message":"[redacted]","message":"y"}`,
		`{"a":[1,{"b":` + quoted(secretUser) + `}]}`:                        `{"a":[1,{"b":"[redacted]"}]}`,
		`{"user":{"x":1,"ema\ud83dil":"hunter2"}}`:                          `{"user":{"x":1}}`,
		`{"a":` + quoted(`{"user":{"ema`+"\\ud83d"+`il":"hunter2"}}`) + `}`: `{"a":"[redacted]"}`,
	} {
		got, _, err := r.apply([]byte(body))
		require.NoError(t, err, body)
		assert.Equal(t, want, string(got))
	}
	labels := r.keepLabels([]relay.Label{{Name: "a", Value: "said: " + secretUser}, {Name: "ｕser.email", Value: "hunter2"}, {Name: "b", Value: "{"}})
	assert.Equal(t, []relay.Label{{Name: "b", Value: "{"}}, labels)
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
		`{"user_email":"another name","user.name":"x","user.":1,".email":2,"a.user.email":3}`,
		`{"a":"goroutine 1 [running]: main.f({0x1, 0x2}) {\\d+} {\\\"a\\\":1}"}`,
	} {
		got, changed, err := r.apply([]byte(body))
		require.NoError(t, err, body)
		assert.False(t, changed, body)
		assert.Equal(t, body, string(got))
	}
}

// A pointer that ends with an index, or with "*", names nothing in a text without an array or an object.
func TestATextWithoutBracketsHoldsNoElement(t *testing.T) {
	t.Parallel()
	r, err := newRedaction(config.Redact{Remove: []string{"/7", "/groups/*", "/emails/0", "/user/*/email"}})
	require.NoError(t, err)
	kept := []string{`"\nfailed"`, `"Über 7"`, `"é 'groups'.'8'"`, `"\u0000\"7"`}
	taken := []string{`"\n[0,1,2,3,4,5,6,7]"`, `"Über [0,NaN]"`, `"%7B%5B0,NaN"`, `"é \\u005b0"`, `"［0"`}
	for _, text := range kept {
		body := `{"a":` + text + `,"groups":` + text + `,"emails":` + text + `,"message":{"emails":` + text + `}}`
		got, _, err := r.apply([]byte(body))
		require.NoError(t, err)
		assert.Equal(t, body, string(got))
		labels := []relay.Label{{Name: "groups", Value: "Über"}, {Name: "emails", Value: "Über"}}
		assert.Equal(t, labels, r.keepLabels(labels))
	}
	for _, text := range taken {
		for _, name := range []string{"a", "groups", "emails"} {
			got, _, err := r.apply([]byte(`{"` + name + `":` + text + `}`))
			require.NoError(t, err)
			assert.Equal(t, `{"`+name+`":"[redacted]"}`, string(got), text)
		}
	}
	for text, want := range map[string]string{
		`{"user":"é 'x'.'email'"}`:  `{"user":"[redacted]"}`,
		`{"groups":"{'a': 'b'"}`:    `{"groups":"[redacted]"}`,
		`{"groups":"é { a: b }"}`:   `{"groups":"[redacted]"}`,
		`{"emails":"é {'0': 'b' "}`: `{"emails":"[redacted]"}`,
	} {
		got, _, err := r.apply([]byte(text))
		require.NoError(t, err)
		assert.Equal(t, want, string(got))
	}
}

// No text takes more than some looks at each of its bytes. Each look makes a copy, so their memory
// tells how many there are. This test is not parallel, since it would count the memory of others.
func TestAHostileTextCostsLittle(t *testing.T) {
	r := rules(t, "/user/email /*/x /*/*/y", "/user/id")
	deep := `{"a":1}`
	for range 10 {
		deep = quoted("x " + deep)
	}
	for _, piece := range []string{`{`, `{"a":`, `{"`, `\"{`, `{\`, `"{`, `[{`, `{"a":"`, "{\\\"a\\\":", `{%25`, `{\\\\%2525`, `"{}",`, deep} {
		text := strings.Repeat(piece, 200_000/len(piece))
		for _, text := range []string{text, "[" + text + "0]"} {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			r.hides([]byte(text), nil)
			runtime.ReadMemStats(&after)
			require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(50*len(text)), "%.40s", text)
		}
	}
}

// A Datadog entry may hold its event as an object. Readers differ in the case of the
// names they know, and in their choice between two equal names.
func TestMoreIsTakenRatherThanLess(t *testing.T) {
	t.Parallel()
	r := rules(t, "/user/email", "/user/id")
	for body, want := range map[string]string{
		`{"message":{"user":{"email":"hunter2","n":1}},"ddsource":"x"}`:                        `{"message":{"user":{"n":1}},"ddsource":"x"}`,
		`{"User":{"EMAIL":"hunter2","n":1}}`:                                                   `{"User":{"n":1}}`,
		`{"u\u0073er":{"Ema\u0131l":1,"e\u004dail":"hunter2"}}`:                                `{"u\u0073er":{}}`,
		`{"uſer":{"email":"hunter2"}}`:                                                         `{"uſer":{}}`,
		`{"user":{"email":"hunter2"},"user":{"email":"hunter2"}}`:                              `{"user":{},"user":{}}`,
		`{"message":{"user":{"id":"x"}}}`:                                                      `{"message":{"user":{"id":` + mac("x") + `}}}`,
		`{"user.email":"hunter2","user.id":"x","b":1}`:                                         `{"user.id":` + mac("x") + `,"b":1}`,
		`{"message.user.email":1,"message":{"User.Email":2}}`:                                  `{"message":{}}`,
		`{"user.email.domain":"hunter2"}`:                                                      `{}`,
		`{"ｕｓｅｒ":{"ｅｍａｉｌ":"hunter2"},"user":{"emaıl":1,"EMAİL":2,"e\u00admail":3,"emai̇l":4}}`: `{"ｕｓｅｒ":{},"user":{}}`,
	} {
		got, changed, err := r.apply([]byte(body))
		require.NoError(t, err, body)
		assert.True(t, changed, body)
		assert.Equal(t, want, string(got))
	}
}

func TestSharpSIsSpelledInTwoWays(t *testing.T) {
	t.Parallel()
	for _, pointer := range []string{"/straße", "/STRASSE"} {
		for _, name := range []string{"straße", "strasse", "STRAẞE", "ｓtraſſe"} {
			got, _, err := rules(t, pointer, "").apply([]byte(`{"` + name + `":"hunter2"}`))
			require.NoError(t, err)
			assert.Equal(t, `{}`, string(got))
		}
	}
}

// A text that is quoted more often than anybody does is not looked into, and counts as hiding a value.
func TestATextIsLookedIntoToABoundedDepth(t *testing.T) {
	t.Parallel()
	r := rules(t, "/user/email", "/user/id")
	text := "[]"
	for range maxQuoted - 1 {
		text = quoted(text)
	}
	for _, c := range []struct {
		text   string
		hidden bool
	}{{text, false}, {quoted(text), true}} {
		got, changed, err := r.apply([]byte(`{"a":` + quoted(c.text) + `}`))
		require.NoError(t, err)
		assert.Equal(t, c.hidden, changed)
		assert.Equal(t, c.hidden, string(got) == `{"a":"[redacted]"}`)
	}
}
