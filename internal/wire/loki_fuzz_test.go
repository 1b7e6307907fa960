package wire

import (
	"encoding/json"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/klauspost/compress/snappy"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/testbed/pushes"
	"github.com/auditrelay/auditrelay/relay"
)

var jsonSeeds = []string{
	`{"streams":[{"stream":{"a":"b"},"values":[["1","x"],["2","y",{"m":"n"}]]}]}`,
	`{"streams":[{"values":[["1","a\"b"]],"stream":{"a":"\u00e9"}}]}`,
	`{"streams":[{"stream":{},"values":[null,[1,"x"],["1",2],["1"],["1","x",3],"x"]}]}`,
	`{"streams":[{"stream":{},"values":[["1","\ud800"],["2","` + "\xff" + `"]]}],"streams":[]}`,
	`{"streams":[{"stream":{"a":1},"values":[["1","x"]]},7,{"entries":[]}]}`,
	`{"x":{"y":[{}]},"streams":[]}`, `{"streams":[`, ``, `{}`,
}

// reference decodes with encoding/json. It returns the streams, the number of entries to
// refuse, and whether to take the body at all.
func reference(body []byte) (out []pushes.Stream, refused int, ok bool) {
	if !json.Valid(body) {
		return nil, 0, false
	}
	var top map[string]json.RawMessage
	if json.Unmarshal(body, &top) != nil || top == nil {
		return nil, 0, false
	}
	var streams []json.RawMessage
	if json.Unmarshal(top["streams"], &streams) != nil || len(streams) == 0 {
		return nil, 0, false
	}
	for _, raw := range streams {
		var s map[string]json.RawMessage
		var values []json.RawMessage
		if json.Unmarshal(raw, &s) != nil || s == nil || json.Unmarshal(s["values"], &values) != nil || values == nil {
			continue
		}
		var labels map[string]*string
		broken := s["stream"] != nil && (json.Unmarshal(s["stream"], &labels) != nil || labels == nil)
		for name, v := range labels {
			broken = broken || v == nil || strings.Contains(name+*v, "\ufffd")
		}
		if broken {
			refused += len(values)
			continue
		}
		var st pushes.Stream
		for _, v := range values {
			var parts []json.RawMessage
			if string(v) == "null" {
				continue
			}
			if e, ok := referenceEntry(json.Unmarshal(v, &parts), parts); ok {
				st.Entries = append(st.Entries, e)
			} else {
				refused++
			}
		}
		out = append(out, st)
	}
	return out, refused, true
}

func referenceEntry(err error, parts []json.RawMessage) (e pushes.Entry, ok bool) {
	if err != nil || len(parts) < 2 || parts[0][0] != '"' || parts[1][0] != '"' {
		return e, false
	}
	var ts, line string
	if json.Unmarshal(parts[0], &ts) != nil || json.Unmarshal(parts[1], &line) != nil || strings.Contains(line, "\ufffd") {
		return e, false
	}
	if e.Time, err = strconv.ParseInt(ts, 10, 64); err != nil || ts[0] == '+' || len(strings.TrimPrefix(ts, "-")) > 19 {
		return e, false
	}
	if len(parts) > 2 {
		var meta map[string]*string
		if json.Unmarshal(parts[2], &meta) != nil || meta == nil {
			return e, false
		}
		for name, v := range meta {
			if v == nil || strings.Contains(name+*v, "\ufffd") {
				return e, false
			}
		}
	}
	e.Line = []byte(line)
	return e, true
}

// FuzzDecodeLokiJSON compares with encoding/json: the same entries with the same bytes, and the
// same number refused. It leaves out bodies that the reference cannot judge: those with U+FFFD,
// and those with repeated keys, which it merges.
func FuzzDecodeLokiJSON(f *testing.F) {
	for _, s := range jsonSeeds {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		want, refused, ok := reference(body)
		text := string(body)
		var got collector
		err := DecodeLokiJSON(body, testLimit, &got)
		for _, s := range got.streams {
			for _, e := range s.Entries {
				require.True(t, utf8.Valid(e.Line))
			}
		}
		for _, key := range []string{"streams", `stream"`, `values`} {
			if strings.Count(text, key) > 1 && !onceEach(text) {
				return
			}
		}
		if err != nil && strings.Contains(err.Error(), "nested deeper") || strings.Contains(text, "\ufffd") || strings.Contains(text, `\u`) {
			return
		}
		require.Equal(t, ok, err == nil, "%q: %v", text, err)
		if err != nil {
			return
		}
		var entries, wantEntries []pushes.Entry
		for _, s := range got.streams {
			for _, e := range s.Entries {
				entries = append(entries, pushes.Entry{Time: e.Time, Line: e.Line})
			}
		}
		for _, s := range want {
			wantEntries = append(wantEntries, s.Entries...)
		}
		require.Equal(t, len(wantEntries), len(entries), "%q", text)
		for i := range entries {
			require.Equal(t, wantEntries[i].Time, entries[i].Time)
			require.Equal(t, string(wantEntries[i].Line), string(entries[i].Line))
		}
		require.Equal(t, refused, got.refused, "%q: %v", text, got.problems)
	})
}

// onceEach reports whether no object of the body has a key twice.
func onceEach(body string) bool {
	dec := json.NewDecoder(strings.NewReader(body))
	return keysOnce(dec)
}

func keysOnce(dec *json.Decoder) bool {
	tok, err := dec.Token()
	if err != nil {
		return false
	}
	switch tok {
	case json.Delim('['):
		for dec.More() {
			if !keysOnce(dec) {
				return false
			}
		}
	case json.Delim('{'):
		seen := map[any]bool{}
		for dec.More() {
			key, err := dec.Token()
			if err != nil || seen[key] {
				return false
			}
			seen[key] = true
			if !keysOnce(dec) {
				return false
			}
		}
	default:
		return true
	}
	_, err = dec.Token()
	return err == nil
}

func FuzzDecodeLokiProto(f *testing.F) {
	f.Add(pushes.LokiProto(nil, []pushes.Stream{streamOf(labels("a", "b"), entry(1, "x", "m", "n"), entry(-1, ""))}))
	f.Add([]byte{0x0a, 0xff, 0xff, 0xff, 0xff, 0x0f})
	f.Add([]byte{0x0a, 0x02, 0x12, 0x7f})
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, raw []byte) {
		before := string(raw)
		var got collector
		if DecodeLokiProto(raw, testLimit, &got) != nil {
			return
		}
		require.Equal(t, before, string(raw), "it must not be written to")
		// Decoded streams come out unchanged when they are encoded and decoded again, in either
		// form.
		var proto, viaJSON collector
		if len(got.streams) == 0 {
			return
		}
		require.NoError(t, DecodeLokiProto(pushes.LokiProto(nil, got.streams), testLimit, &proto))
		require.Empty(t, proto.problems)
		require.Equal(t, got.streams, proto.streams)
		body, err := pushes.Loki(nil, got.streams)
		require.NoError(t, err)
		require.NoError(t, DecodeLokiJSON(body, testLimit, &viaJSON))
		require.Equal(t, got.streams, viaJSON.streams)
	})
}

func labelsOf(text []byte) ([]relay.Label, error) {
	var set LabelSet
	set.Reset(LabelLimit{Count: 1 << 20, Bytes: 1 << 20})
	err := parseLabels(&set, text)
	return set.Labels, err
}

func FuzzLokiLabels(f *testing.F) {
	for _, s := range []string{`{}`, ``, `{a="b"}`, `{a="b", c='d', "e f"="g",}`, "{a=`b`}", `{a="\xff"}`, `{a="\u00e9\n"}`, `{a=b}`, `{`, `{a="b}`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got, err := labelsOf([]byte(text))
		if err != nil {
			return
		}
		again, err := labelsOf(pushes.LabelText(nil, got))
		require.NoError(t, err)
		require.Equal(t, got, again)
	})
}

func FuzzUnsnappy(f *testing.F) {
	f.Add(snappy.Encode(nil, []byte("hello hello hello hello hello")))
	f.Add([]byte{0xff, 0xff, 0xff, 0x7f, 0x00})
	f.Fuzz(func(t *testing.T, src []byte) {
		n, err := UnsnappyLen(src)
		if err != nil {
			return
		}
		require.LessOrEqual(t, n, maxRatio*len(src))
		if out, err := Unsnappy(nil, src); err == nil {
			require.Len(t, out, n)
		}
	})
}
