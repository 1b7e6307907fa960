package jsontext

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var seeds = []string{
	``, ` `, `null`, `true`, `false`, `truth`, `nul`, `0`, `-0`, `01`, `-`, `1.`, `1.5e+10`, `1e`, `.5`, `+1`,
	`""`, `"a`, `"a\"b\\c\/d\b\f\n\r\t"`, `"\u00e9\u20ac"`, `"\ud83d\ude00 pair"`, `"\ud83d half"`, `"\ude00"`, `"\ud83d\u0041"`,
	`"\x"`, `"\u12"`, `"\u12g4"`, "\"tab\there\"", "\"\x00\"", "\"é plain €\"", "\"\xff\xfe\"", "\"\xc3\\u00a9\"",
	`"aaaaaaaaaaaaaaaa\"bbbbbbbbbbbbbbbbbbbbbbb\"cccccccccccccccccccccccccccc\n"`,
	`{}`, `[]`, `[1,]`, `[,1]`, `[1 2]`, `{"a":1,}`, `{"a" 1}`, `{a:1}`, `{"a":[{"b":[]}],"c":"}"}`, `[[[[]]]]`, `[}`, `{]`, "\ufeff{}",
	`{"a":1} x`, `[1]]`, `{"\u0061":"b"}`, "{\"\xff\":1}",
}

func FuzzSkip(f *testing.F) {
	for _, s := range seeds {
		f.Add([]byte(s))
	}
	f.Add([]byte(strings.Repeat("[", MaxDepth) + strings.Repeat("]", MaxDepth)))
	f.Fuzz(func(t *testing.T, text []byte) {
		before := string(text)
		var s Scanner
		s.Reset(text)
		err := s.Skip()
		if err == nil {
			err = s.End()
		}
		require.Equal(t, before, string(text), "skipping must not write")
		if err == nil && s.ASCII() {
			require.NotContains(t, strings.Map(isHigh, string(text)), "x")
		}
		if err != nil && strings.Contains(err.Error(), "nested deeper") {
			return
		}
		require.Equal(t, json.Valid(text), err == nil, "%q: %v", text, err)
	})
}

// isHigh maps everything outside of ASCII to x, and drops the rest.
func isHigh(r rune) rune {
	if r >= 0x80 {
		return 'x'
	}
	return -1
}

func FuzzUnescape(f *testing.F) {
	for _, s := range seeds {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var want string
		wantErr := json.Unmarshal(text, &want)
		if wantErr == nil && strings.TrimSpace(string(text)) == "null" {
			return
		}
		original := append([]byte(nil), text...)
		var raw Scanner
		raw.Reset(original)
		kept, rawErr := raw.String()
		if rawErr == nil {
			rawErr = raw.End()
		}
		var s Scanner
		s.Reset(text)
		got, err := s.Unescape()
		if endErr := s.End(); err == nil || IsContent(err) && endErr != nil {
			if err == nil {
				err = endErr
			} else {
				err = endErr
			}
		}
		require.Equal(t, wantErr == nil, err == nil || IsContent(err), "%q: %v, %v", text, wantErr, err)
		require.Equal(t, wantErr == nil, rawErr == nil, "%q: %v, %v", text, wantErr, rawErr)
		if wantErr != nil {
			return
		}
		apart := append([]byte(nil), original...)
		var a Scanner
		a.Reset(apart)
		text, textErr := a.AppendText([]byte("x"), 1<<30)
		require.Equal(t, original, apart, "what is read stays as it is")
		require.NoError(t, a.End())
		appended, appendErr := kept.AppendText([]byte("x"))
		require.Equal(t, appendErr, textErr)
		require.Equal(t, appended, text)
		if err != nil {
			require.Contains(t, want, "\ufffd", "the reference must have replaced something")
			require.ErrorIs(t, appendErr, err)
			require.Equal(t, "x", string(appended))
			return
		}
		require.Equal(t, want, string(got))
		require.True(t, utf8.Valid(got))
		require.NoError(t, appendErr)
		require.Equal(t, "x"+want, string(appended))
	})
}

// What stands at the edge of a block is escaped as anywhere else.
func TestEscapesAtAnyPlace(t *testing.T) {
	t.Parallel()
	for before := range 2*blockSize + 10 {
		for _, middle := range []string{`"`, `\`, `\"`, `\\`, `\\"`, `"\`, "\n", `\` + "\n", `"é`, ``} {
			want := strings.Repeat("x", before) + middle + strings.Repeat(`"y":\\z`, 20)
			text, err := json.Marshal(want)
			require.NoError(t, err)
			var raw, s Scanner
			raw.Reset(bytes.Clone(text))
			kept, err := raw.String()
			require.NoError(t, err)
			require.Equal(t, text[1:len(text)-1], kept.Bytes)
			s.Reset(append(text, `, "and more"`...))
			got, err := s.Unescape()
			require.NoError(t, err)
			require.Equal(t, want, string(got))
			require.Equal(t, len(text), s.Pos())
		}
		bare := []byte(`"` + strings.Repeat("x", before) + "\n" + strings.Repeat("y", 2*blockSize) + `"`)
		var s Scanner
		s.Reset(bare)
		_, err := s.Unescape()
		require.ErrorContains(t, err, "a character that needs no escape")
		require.Equal(t, before+1, s.Pos())
	}
}

func FuzzAppendString(f *testing.F) {
	for _, s := range seeds {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		out := AppendString(nil, text)
		require.Equal(t, out, AppendString(nil, []byte(text)))
		require.False(t, bytes.ContainsAny(out, "\n\r\x7f\u0085\u2028\u2029"))
		var back string
		require.NoError(t, json.Unmarshal(out, &back))
		require.Equal(t, string([]rune(text)), back, "each byte outside of UTF-8 is U+FFFD")
	})
}

// FuzzLookup compares with encoding/json on valid JSON: a key that occurs once must be found.
func FuzzLookup(f *testing.F) {
	for _, s := range seeds {
		f.Add([]byte(s))
	}
	f.Add([]byte(`{"x":{"event_id":"no"},"event_id":"yes","action":7}`))
	f.Add([]byte(`{"\u0065vent_id":"y\u0065s"}`))
	f.Add([]byte(`{"event_id":null,"event_id":"second"}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		wanted := []Wanted{{Quoted: `"event_id"`}, {Quoted: `"action"`}}
		Lookup(text, wanted)
		var ref map[string]json.RawMessage
		if json.Unmarshal(text, &ref) != nil || strings.Count(string(text), "event_id") > 1 || strings.Contains(string(text), `\`) {
			return
		}
		raw, there := ref["event_id"]
		if strings.Contains(string(text), strings.Repeat("[", MaxDepth)) {
			return
		}
		require.Equal(t, there, wanted[0].Found)
		var want string
		if there && raw[0] == '"' && json.Unmarshal(raw, &want) == nil {
			got, err := wanted[0].Value.AppendText(nil)
			if err == nil {
				require.Equal(t, want, string(got))
			}
		} else {
			require.Empty(t, wanted[0].Value.Bytes)
		}
	})
}

func TestSkipDepth(t *testing.T) {
	t.Parallel()
	for _, open := range []string{"[", `{"a":`} {
		var s Scanner
		s.Reset([]byte(strings.Repeat(open, MaxDepth+1)))
		require.ErrorContains(t, s.Skip(), "nested deeper than 512")
	}
	var s Scanner
	s.Reset([]byte(strings.Repeat("[", MaxDepth) + strings.Repeat("]", MaxDepth)))
	require.NoError(t, s.Skip())
	require.NoError(t, s.End())
}

func TestLookup(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][2]string{
		`{"event_id":"e1","action":"login"}`:                            {"e1", "login"},
		`{"action":"login","n":{"event_id":"in"},"event_id":"out"}`:     {"out", "login"},
		`{"event_id":"first","event_id":"second"}`:                      {"first", ""},
		`{"event_id":7,"event_id":"second","action":"a"}`:               {"", "a"},
		`{"\u0065vent_id":"e\u0031","a":1}`:                             {"e1", ""},
		`{"note":"\"event_id\":\"x\"","list":["event_id"],"action":[]}`: {"", ""},
		`["event_id"]`:                        {"", ""},
		`plain text with "event_id":"x"`:      {"", ""},
		`{"event_id":"e1", broken "action":1`: {"e1", ""},
	} {
		wanted := []Wanted{{Quoted: `"event_id"`}, {Quoted: `"action"`}}
		Lookup([]byte(text), wanted)
		for i, w := range wanted {
			got, err := w.Value.AppendText(nil)
			require.NoError(t, err)
			assert.Equal(t, want[i], string(got), text)
		}
	}
}

func TestErrorsShowNoContent(t *testing.T) {
	t.Parallel()
	var s Scanner
	s.Reset([]byte(`{"password":"hunter2" "x"}`))
	err := s.Skip()
	require.Error(t, err)
	assert.NotContains(t, err.Error(), "hunter2")
	assert.Contains(t, err.Error(), "byte 22")
}

// TestUnescapeKeepsToItsString reads strings of all lengths, followed by other bytes in the
// buffer, since the scanner moves text many bytes at a time.
func TestUnescapeKeepsToItsString(t *testing.T) {
	t.Parallel()
	pieces := []string{`\"`, `\\`, `\n`, `\u00e9`, `\ud83d\ude00`, "é", "a", "two", "and twenty-three letters", strings.Repeat("x", 70)}
	const behind = `,"\"behind\\\" and more of it, so that the string does not end with the buffer: 0123456789 0123456789 0123456789"`
	random := rand.New(rand.NewPCG(1, 2))
	for range 5000 {
		text := `"`
		for range random.IntN(40) {
			text += pieces[random.IntN(len(pieces))]
		}
		text += `"`
		var want string
		require.NoError(t, json.Unmarshal([]byte(text), &want))
		buf := []byte(text + behind[:random.IntN(len(behind)+1)])
		left := string(buf[len(text):])
		var s Scanner
		s.Reset(buf)
		raw, err := s.String()
		require.NoError(t, err, text)
		require.Equal(t, text[1:len(text)-1], string(raw.Bytes))
		require.False(t, raw.ASCII && strings.ContainsRune(want, 'é') && !raw.Escaped)
		s.Reset(buf)
		got, err := s.Unescape()
		require.NoError(t, err, text)
		require.Equal(t, want, string(got), text)
		require.Equal(t, left, string(buf[len(text):]), text)
	}
}

const escapedLine = `"{\"event_id\":\"evt-abcdef-0000000001\",\"ts\":\"2025-06-01T00:00:00.000Z\",\"tenant\":\"t-001\",\"realm\":\"prod-eu-1\",\"actor\":{\"user_id\":\"u-000001\",\"username\":\"user000001@example.test\"},\"src\":{\"ip\":\"10.1.2.3\",\"port\":1024}}"`

// TestAppendText reads strings that are longer and shorter than the scanner's guess, from one
// buffer, into memory with and without room.
func TestAppendText(t *testing.T) {
	t.Parallel()
	var want []string
	for _, n := range []int{0, 1, 100, 1 << 10, 1<<10 - 1, 5000, 3, 70_000, 64, 200_000} {
		want = append(want, strings.Repeat("é\"\\n\n", n))
	}
	array, err := json.Marshal(want)
	require.NoError(t, err)
	for _, room := range []int{0, 10, 1 << 20} {
		var s Scanner
		s.Reset(array)
		require.NoError(t, s.Open('['))
		for i, w := range want {
			_, err := s.More(']', i)
			require.NoError(t, err)
			got, err := s.AppendText(append(make([]byte, 0, room), "kept"...), 1<<30)
			require.NoError(t, err)
			require.Equal(t, "kept"+w, string(got))
		}
		more, err := s.More(']', len(want))
		require.NoError(t, err)
		require.False(t, more)
	}
	for _, bad := range []string{`"` + strings.Repeat("x", 9000), `"` + strings.Repeat("x", 9000) + "\x01\"", `"` + strings.Repeat("x", 9000) + `\u12"`, `x`} {
		var kept, apart Scanner
		kept.Reset([]byte(bad))
		apart.Reset([]byte(bad))
		_, want := kept.Unescape()
		got, err := apart.AppendText([]byte("kept"), 1<<30)
		require.Equal(t, want, err, "the place of the error too")
		require.Equal(t, "kept", string(got))
	}
	var s Scanner
	s.Reset([]byte(`"\ud800" 1`))
	_, err = s.AppendText(nil, 1<<30)
	require.ErrorIs(t, err, ErrSurrogate)
	require.Equal(t, byte('1'), s.Peek(), "it goes on after the string")
	for text, want := range map[string]error{
		strings.Repeat("x", 5000): nil, strings.Repeat("x", 5001): ErrLong, strings.Repeat("x", 90_000): ErrLong,
	} {
		s.Reset([]byte(`"` + text + `" 1`))
		got, err := s.AppendText([]byte("kept"), 5000)
		require.Equal(t, want, err)
		require.Equal(t, want == nil, len(got) == 5004)
		require.Less(t, cap(got), 20_000)
		require.Equal(t, byte('1'), s.Peek(), "it goes on after the string")
	}
}

func BenchmarkUnescape(b *testing.B) {
	text := []byte(escapedLine)
	buf := make([]byte, len(text))
	var s Scanner
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		copy(buf, text)
		s.Reset(buf)
		if _, err := s.Unescape(); err != nil {
			b.Fatal(err)
		}
	}
}
