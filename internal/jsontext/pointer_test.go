package jsontext

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func parse(t testing.TB, text string) Pointer {
	t.Helper()
	p, err := ParsePointer(text)
	require.NoError(t, err, text)
	require.Equal(t, text, p.String())
	return p
}

// The document and the values of RFC 6901, section 5.
func TestTheStandardsExamples(t *testing.T) {
	t.Parallel()
	body := []byte(`{"foo": ["bar", "baz"], "": 0, "a/b": 1, "c%d": 2, "e^f": 3, "g|h": 4, "i\\j": 5, "k\"l": 6, " ": 7, "m~n": 8 }`)
	for pointer, want := range map[string]string{
		"": string(body), "/foo": `["bar", "baz"]`, "/foo/0": `"bar"`, "/": "0", "/a~1b": "1", "/c%d": "2",
		"/e^f": "3", "/g|h": "4", `/i\j`: "5", `/k"l`: "6", "/ ": "7", "/m~0n": "8",
	} {
		raw, ok := parse(t, pointer).Find(body)
		assert.True(t, ok, pointer)
		assert.Equal(t, want, string(raw), pointer)
		assert.Equal(t, len(raw), cap(raw), "what follows in the body must be safe from an append")
	}
}

func TestFind(t *testing.T) {
	t.Parallel()
	const none = ""
	for _, c := range []struct{ body, pointer, want string }{
		{` {"user" : {"id" : "u1" } } `, "/user/id", `"u1"`},
		{`{"a":1,"a":2}`, "/a", "2"},
		{`{"a":1,"\u0061":2}`, "/a", "2"},
		{`{"a":{"b":1},"a":{}}`, "/a/b", none},
		{`{"a":{"b":1},"a":7}`, "/a/b", none},
		{`{"a":{"b":{"a":3}},"b":4}`, "/b", "4"},
		{`{"a":null}`, "/a", "null"},
		{`[[1,2],[3,[4,5]]]`, "/1/1/0", "4"},
		{`[1,2]`, "/2", none},
		{`[1,2]`, "/-", none},
		{`[1,2]`, "/01", none},
		{`[1,2]`, "/+1", none},
		{`[1,2]`, "/18446744073709551617", none},
		{`{"01":1,"-":2}`, "/01", "1"},
		{`{"1":true}`, "/1", "true"},
		{`"text"`, "/0", none},
		{`"text"`, "", `"text"`},
		{`{"a":1} x`, "/a", none},
		{`{"a":1,`, "/a", none},
		{`{"a":1,"b":}`, "/a", none},
		{`{"a":tru}`, "/a", none},
		{``, "", none},
		{`plain text`, "/a", none},
		{`{"é":1}`, "/é", "1"},
		{`{"\u00e9\ud83d\ude00":1}`, "/é😀", "1"},
		{`{"\ud83d":1}`, "/\ufffd", none},
		{"{\"\xff\":1}", "/\ufffd", none},
		{`{"` + strings.Repeat(`\u0061`, 300) + `":1}`, "/" + strings.Repeat("a", 300), "1"},
		{strings.Repeat("[", 400) + "7" + strings.Repeat("]", 400), strings.Repeat("/0", 400), "7"},
	} {
		raw, ok := parse(t, c.pointer).Find([]byte(c.body))
		assert.Equal(t, c.want != none, ok, "%s in %s", c.pointer, c.body)
		assert.Equal(t, c.want, string(raw), "%s in %s", c.pointer, c.body)
	}
}

func TestParseNamesTheColumn(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"user/id":   `column 1: a JSON pointer begins with "/", as in /user/id; this begins with 'u'`,
		"#/user":    `column 1: a JSON pointer begins with "/", as in /user/id; this begins with '#'`,
		"/a~":       `column 3: "~" must be followed by 0`,
		"/é/b~2c":   `column 5: "~" must be followed by 0`,
		"/ok/b\xff": "column 6: it is not valid UTF-8",
	} {
		_, err := ParsePointer(text)
		require.ErrorContains(t, err, want, text)
	}
}

func TestAppendValue(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]string{
		`"plain"`: "plain", `"a\"\u00e9\n"`: "a\"é\n", `"\ud83d\ude00"`: "😀", `""`: "",
		"12.50": "12.50", "-1e9": "-1e9", "true": "true", "false": "false",
	} {
		text, ok := AppendValue([]byte("x"), []byte(raw))
		assert.True(t, ok, raw)
		assert.Equal(t, "x"+want, string(text))
	}
	for _, raw := range []string{"null", `{"a":1}`, `[1]`, `"\ud83d"`, "\"\xff\"", ""} {
		text, ok := AppendValue([]byte("x"), []byte(raw))
		assert.False(t, ok, raw)
		assert.Equal(t, "x", string(text))
	}
}

const event = `{"event_id":"evt-1","ts":"2026-06-01T00:00:00Z","actor":{"kind":"user","id":"u-\u00e9-7","groups":["a","b"]},` +
	`"src":{"ip":"10.1.2.3","port":1024},"n\u006fte":"said \"hi\"","action":"login"}`

// This test is not parallel, since it would count the allocations of others.
func TestFindAllocatesNothing(t *testing.T) {
	body, buf := []byte(event), make([]byte, 0, 64)
	for _, text := range []string{"/actor/id", "/actor/groups/1", "/note", "/nowhere"} {
		p := parse(t, text)
		assert.Zero(t, testing.AllocsPerRun(100, func() {
			raw, _ := p.Find(body)
			_, _ = AppendValue(buf, raw)
		}), text)
	}
	assert.Equal(t, event, string(body))
}

// FuzzFind compares with encoding/json on the same text.
func FuzzFind(f *testing.F) {
	for _, s := range [][2]string{
		{event, "/actor/id"},
		{`{"a":{"b":1},"a":[2,{"c":"\n"}]}`, "/a/1/c"},
		{`{"a":1,"\u0061":{"":null}}`, "/a/"},
		{`[[],[0,-1.5e3,"x"]]`, "/1/2"},
		{`{"~/":[true]}`, "/~0~1/0"},
		{"{\"\xff\":1}", "/\ufffd"},
	} {
		f.Add([]byte(s[0]), s[1])
	}
	f.Fuzz(func(t *testing.T, body []byte, text string) {
		p, err := ParsePointer(text)
		if err != nil {
			return
		}
		before := slices.Clone(body)
		raw, ok := p.Find(body)
		require.Equal(t, before, body, "the body must not be written to")
		if bytes.Count(body, []byte("["))+bytes.Count(body, []byte("{")) > MaxDepth {
			return
		}
		var whole any
		if !json.Valid(body) {
			require.False(t, ok)
			return
		}
		decode(t, body, &whole)
		want, there := walk(whole, text)
		if !utf8.Valid(body) || bytes.Contains(bytes.ToLower(body), []byte(`\ud`)) || strings.Contains(text, "\ufffd") {
			return // encoding/json replaces invalid text
		}
		require.Equal(t, there, ok, "%s in %s", text, body)
		if !there {
			return
		}
		var got any
		decode(t, raw, &got)
		require.Equal(t, want, got)
		asText, ok := AppendValue(nil, raw)
		switch want := want.(type) {
		case string:
			require.Equal(t, want, string(asText))
		case json.Number:
			require.Equal(t, want.String(), string(asText))
		case bool:
			require.Equal(t, string(raw), string(asText))
		default:
			require.False(t, ok)
		}
	})
}

func decode(t *testing.T, text []byte, v any) {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	require.NoError(t, d.Decode(v))
}

// walk is RFC 6901 over decoded values, written without regard to speed.
func walk(v any, pointer string) (any, bool) {
	if pointer == "" {
		return v, true
	}
	for _, name := range strings.Split(pointer, "/")[1:] {
		name = strings.ReplaceAll(strings.ReplaceAll(name, "~1", "/"), "~0", "~")
		switch in := v.(type) {
		case map[string]any:
			next, ok := in[name]
			if !ok {
				return nil, false
			}
			v = next
		case []any:
			var i int
			if json.Unmarshal([]byte(name), &i) != nil || strings.Trim(name, "0123456789") != "" || i >= len(in) {
				return nil, false
			}
			v = in[i]
		default:
			return nil, false
		}
	}
	return v, true
}

func BenchmarkFind(b *testing.B) {
	body, buf := []byte(event), make([]byte, 0, 64)
	p := parse(b, "/actor/id")
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		raw, _ := p.Find(body)
		buf, _ = AppendValue(buf[:0], raw)
	}
}
