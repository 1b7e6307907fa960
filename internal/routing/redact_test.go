package routing

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/config/secret"
)

const key = "0123456789abcdef"

func mac(text string) string {
	h := hmac.New(sha256.New, []byte(key))
	h.Write([]byte(text))
	return `"hmac-sha256:` + hex.EncodeToString(h.Sum(nil)) + `"`
}

func rules(t testing.TB, remove, hash string) *redaction {
	t.Helper()
	r, err := newRedaction(config.Redact{Remove: strings.Fields(remove), Hash: strings.Fields(hash), HashKey: secret.New(key)})
	require.NoError(t, err)
	return r
}

func TestRedaction(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ body, remove, hash, want string }{
		{`{"a":1,"b":2,"c":3}`, "/b", "", `{"a":1,"c":3}`},
		{`{"a":1,"b":2,"c":3}`, "/a", "", `{"b":2,"c":3}`},
		{`{"a":1,"b":2,"c":3}`, "/c", "", `{"a":1,"b":2}`},
		{`{"a":1,"b":2,"c":3}`, "/a /b", "", `{"c":3}`},
		{`{"a":1,"b":2,"c":3}`, "/b /c", "", `{"a":1}`},
		{`{"a":1,"b":2,"c":3}`, "/a /c", "", `{"b":2}`},
		{`{"a":1,"b":2,"c":3}`, "/a /b /c", "", `{}`},
		{` { "a" : 1.50 , "b" : "\u00e9" , "c" : 3 } `, "/a", "", ` { "b" : "\u00e9" , "c" : 3 } `},
		{` { "a" : 1.50 , "b" : "\u00e9" , "c" : 3 } `, "/b", "", ` { "a" : 1.50  , "c" : 3 } `},
		{` { "a" : 1.50 , "b" : "\u00e9" , "c" : 3 } `, "/c", "", ` { "a" : 1.50 , "b" : "\u00e9"  } `},
		{` { "a" : 1.50 } `, "/a", "", ` {  } `},
		{"{\n\t\"a\": 1,\n\t\"b\": 2\n}", "/b", "", "{\n\t\"a\": 1\n}"},

		{`{"user":{"email":"a@b.c","id":"u"},"email":"x"}`, "/user/email", "", `{"user":{"id":"u"},"email":"x"}`},
		{`{"a":1,"a":2,"\u0061":3,"b":4,"a":5}`, "/a", "", `{"b":4}`},
		{`{"user":{"e":1},"user":{"e":2,"f":3},"user":7}`, "/user/e", "", `{"user":{},"user":{"f":3},"user":7}`},
		{`{"\u0065mail":"a","k\"":1,"\ud83d\ude00":2,"é":3,"~/":4}`, `/email /k" /😀 /é /~0~1`, "", `{}`},
		{`{"a":[1,{"b":2},3]}`, "/a/0 /a/1/b", "", `{"a":[null,{},3]}`},
		{`{"a":[1,{"b":2},3]}`, "/a/3 /a/- /a/01 /a/b", "", ""},
		{`{"a":[{"b":1},{"b":2,"c":3},7]}`, "/a/*/b", "", `{"a":[{},{"c":3},7]}`},
		{`{"a":{"x":{"b":1},"y":{"b":2},"*":{"b":3}}}`, "/a/*/b", "", `{"a":{"x":{},"y":{},"*":{}}}`},
		{`{"z":[{"a":1},[{"a":2}]]}`, "/z/*/a /z/1/0/a", "", `{"z":[{},[{}]]}`},
		{`{"x":[{"a":1,"b":2},{"a":3,"b":4}]}`, "/x/*/a", "/x/1/b", `{"x":[{"b":2},{"b":` + mac("4") + `}]}`},
		{`{"x":{"y":{"a":1,"b":2}},"z":{"y":{"a":1,"b":2}}}`, "/*/y/a", "/x/*/b", `{"x":{"y":{"b":` + mac("2") + `}},"z":{"y":{"b":2}}}`},
		{`{"0":{"a":1},"1":{"a":1}}`, "/*/a", "/0/b", `{"0":{},"1":{}}`},

		{`{"a":"x","b":"\u0078","c":"x","c":"x"}`, "", "/a /b /c", `{"a":` + mac("x") + `,"b":` + mac("x") + `,"c":` + mac("x") + `,"c":` + mac("x") + `}`},
		{`{"a":1.50,"b":{"c": [1] },"d":null,"e":"caf\u00e9"}`, "", "/a /b /d /e", `{"a":` + mac("1.50") + `,"b":` + mac(`{"c": [1] }`) + `,"d":` + mac("null") + `,"e":` + mac("café") + `}`},
		{`{"a":"\ud83d"}`, "", "/a", `{"a":` + mac(`\ud83d`) + `}`},
		{`{"z":[1,2]}`, "/z/0", "/z/1", `{"z":[null,` + mac("2") + `]}`},

		{`{"a":{"b":1,"c":2}}`, "/a", "/a/b", `{}`},
		{`{"a":{"b":1,"c":2}}`, "/a/b", "/a", `{"a":` + mac(`{"b":1,"c":2}`) + `}`},
		{`{"a":{"b":1}}`, "/a/*", "/a/b", `{"a":{}}`},

		{`{"a":1}`, "/b /a/b /a/0", "", ""},
	} {
		before := strings.Clone(c.body)
		body := []byte(c.body)
		got, changed, err := rules(t, c.remove, c.hash).apply(body)
		require.NoError(t, err, c.body)
		assert.Equal(t, before, string(body), "it must not be written to")
		assert.Equal(t, c.want != "", changed, c.body)
		if c.want == "" {
			assert.Same(t, &body[0], &got[0])
			continue
		}
		assert.Equal(t, c.want, string(got), "%s without %s and %s", c.body, c.remove, c.hash)
	}
}

func TestWhatCannotBeRedacted(t *testing.T) {
	t.Parallel()
	r := rules(t, "/user/email", "/ip")
	for body, want := range map[string]string{
		``:                                     "invalid JSON at byte 0",
		`plain text with a@example.com`:        "invalid JSON",
		`{"user":{"email":"hunter2"}`:          "invalid JSON",
		`{"user":{"email":"hunter2"}} {}`:      "invalid JSON",
		`{"user":{"email":"hunter2",}}`:        "invalid JSON",
		`{"user":{'email':"hunter2"}}`:         "invalid JSON",
		"\ufeff" + `{"user":{"email":"x"}}`:    "invalid JSON",
		"{\"em\xffail\":1}":                    "not valid UTF-8",
		` 7 `:                                  "it is a number, not a JSON object",
		`["text"]`:                             "it is an array, not a JSON object",
		`"text"`:                               "it is a string, not a JSON object",
		`{"deep":` + strings.Repeat("[", 1000): "nested deeper than 512",
	} {
		got, changed, err := r.apply([]byte(body))
		require.ErrorContains(t, err, want, body)
		assert.Nil(t, got)
		assert.False(t, changed)
		assert.NotContains(t, err.Error(), "hunter2")
	}
	_, changed, err := r.apply([]byte(`{"other":{"\ud83demail":1}}`))
	require.NoError(t, err, "no pointer leads by that name")
	assert.False(t, changed)
}

func TestRedactionErrors(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ remove, hash, key, want string }{
		{"email", "", key, `pointer "email": column 1: a JSON pointer begins with "/"`},
		{"", "/a~2", key, `pointer "/a~2": column 3:`},
		{"", "/a", "", "a key is required"},
	} {
		_, err := newRedaction(config.Redact{Remove: strings.Fields(c.remove), Hash: strings.Fields(c.hash), HashKey: secret.New(c.key)})
		require.ErrorContains(t, err, c.want)
	}
	_, err := newRedaction(config.Redact{Remove: []string{""}})
	require.ErrorContains(t, err, "names the whole body")
}

const event = `{"event_id":"evt-1","ts":"2026-06-01T00:00:00Z","actor":{"kind":"user","id":"u-\u00e9-7","email":"a@example.com","groups":["a","b"]},` +
	`"src":{"ip":"10.1.2.3","port":1024},"n\u006fte":"said \"hi\"","action":"login"}`

// This test is not parallel, since it would count the allocations of others.
func TestUnchangedAllocatesNothing(t *testing.T) {
	r, body := rules(t, "/user/email /actor/*/email /src/ips/*", "/actor/phone"), []byte(event)
	assert.Zero(t, testing.AllocsPerRun(100, func() {
		if _, changed, err := r.apply(body); changed || err != nil {
			t.Fatal(changed, err)
		}
	}))
}

func BenchmarkRedaction(b *testing.B) {
	for name, r := range map[string]*redaction{
		"nothing":    rules(b, "/user/email /actor/phone", ""),
		"remove":     rules(b, "/actor/email", ""),
		"hash":       rules(b, "", "/actor/email"),
		"remove-two": rules(b, "/actor/email /src/ip", ""),
	} {
		b.Run(name, func(b *testing.B) {
			body := []byte(event)
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			for b.Loop() {
				if _, _, err := r.apply(body); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
