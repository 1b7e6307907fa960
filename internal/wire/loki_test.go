package wire

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/testbed/pushes"
	"github.com/auditrelay/auditrelay/relay"
)

// collector keeps copies of a decoder's finds.
type collector struct {
	streams  []pushes.Stream
	problems []string
	refused  int
	fail     error
}

func (c *collector) Stream(labels []relay.Label) error {
	c.streams = append(c.streams, pushes.Stream{Labels: cloneLabels(labels)})
	return nil
}

func (c *collector) Entry(_ Place, e *Entry) error {
	if c.fail != nil {
		return c.fail
	}
	s := &c.streams[len(c.streams)-1]
	s.Entries = append(s.Entries, pushes.Entry{Time: e.Time, Line: []byte(string(e.Body)), Meta: cloneLabels(e.Labels)})
	return nil
}

func (c *collector) Refuse(p Problem) error {
	c.problems = append(c.problems, p.Error())
	c.refused += p.Entries
	return nil
}

// testLimit is for tests of other things than limits.
var testLimit = LabelLimit{Count: 128, Bytes: 64 << 10}

func cloneLabels(labels []relay.Label) []relay.Label {
	var out []relay.Label
	for _, l := range labels {
		out = append(out, relay.Label{Name: strings.Clone(l.Name), Value: strings.Clone(l.Value)})
	}
	return out
}

func labels(pairs ...string) []relay.Label {
	var out []relay.Label
	for p := range slices.Chunk(pairs, 2) {
		out = append(out, relay.Label{Name: p[0], Value: p[1]})
	}
	return out
}

func streamOf(labels []relay.Label, entries ...pushes.Entry) pushes.Stream {
	return pushes.Stream{Labels: labels, Entries: entries}
}

func entry(t int64, line string, meta ...string) pushes.Entry {
	return pushes.Entry{Time: t, Line: []byte(line), Meta: labels(meta...)}
}

func TestDecodeLokiJSON(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		body string
		want []pushes.Stream
	}{
		"two streams": {
			`{"streams":[{"stream":{"a":"b","c":"d"},"values":[["1","x"],["2","y",{"m":"n"}]]},{"stream":{"a":"e"},"values":[["-3",""]]}]}`,
			[]pushes.Stream{streamOf(labels("a", "b", "c", "d"), entry(1, "x"), entry(2, "y", "m", "n")), streamOf(labels("a", "e"), entry(-3, ""))},
		},
		"values before stream": {
			`{"x":[1,{"y":2}],"streams":[{"values":[["1","a\"b\\"]],"z":null,"stream":{"a":"\u00e9"}}],"w":"q"}`,
			[]pushes.Stream{streamOf(labels("a", "é"), entry(1, `a"b\`))},
		},
		"escapes everywhere": {
			`{"\u0073treams":[{"str\u0065am":{"\u0061":"b\n"},"values":[["1","{\"event_id\":\"e\",\"u\":\"\ud83d\ude00\"}",{"k\t":"v\/"}]]}]}`,
			[]pushes.Stream{streamOf(labels("a", "b\n"), entry(1, `{"event_id":"e","u":"😀"}`, "k\t", "v/"))},
		},
		"white space":    {" {\n\"streams\" : [ { \"stream\" : { } , \"values\" : [ [ \"1\" , \"x\" , { } , 7 ] ] } ] } \n", []pushes.Stream{streamOf(nil, entry(1, "x"))}},
		"no entries":     {`{"streams":[{"stream":{"a":"b"},"values":[]}]}`, []pushes.Stream{streamOf(labels("a", "b"))}},
		"null values":    {`{"streams":[{"stream":{"a":"b"},"values":null}]}`, nil},
		"null entry":     {`{"streams":[{"stream":{},"values":[null,["9223372036854775807","x"],["-9223372036854775808","y"]]}]}`, []pushes.Stream{streamOf(nil, entry(9223372036854775807, "x"), entry(-9223372036854775808, "y"))}},
		"no labels":      {`{"streams":[{"values":[["1","x"]]}]}`, []pushes.Stream{streamOf(nil, entry(1, "x"))}},
		"streams twice":  {`{"streams":[{"stream":{},"values":[["1","x"]]}],"streams":[{"stream":{},"values":[["2","y"]]}]}`, []pushes.Stream{streamOf(nil, entry(1, "x")), streamOf(nil, entry(2, "y"))}},
		"repeated label": {`{"streams":[{"stream":{"a":"1","a":"2"},"values":[]}]}`, []pushes.Stream{streamOf(labels("a", "1", "a", "2"))}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got collector
			require.NoError(t, DecodeLokiJSON([]byte(c.body), testLimit, &got))
			assert.Equal(t, c.want, got.streams)
			assert.Empty(t, got.problems)
		})
	}
}

// TestDecodeLokiJSONRefuses has a good entry next to each bad one.
func TestDecodeLokiJSONRefuses(t *testing.T) {
	t.Parallel()
	values := func(bad string) string {
		return `{"streams":[{"stream":{"a":"b"},"values":[["1","good"],` + bad + `,["2","too"]]}]}`
	}
	good := []pushes.Stream{streamOf(labels("a", "b"), entry(1, "good"), entry(2, "too"))}
	after := []pushes.Stream{streamOf(nil, entry(1, "good"))}
	for _, c := range []struct {
		body    string
		problem string
		refused int
		want    []pushes.Stream
	}{
		{values(`[1,"x"]`), "stream 1, entry 2: timestamp: it is a number, not a string", 1, good},
		{values(`["1.5","x"]`), "stream 1, entry 2: timestamp: it is no count of nanoseconds", 1, good},
		{values(`["","x"]`), "stream 1, entry 2: timestamp: it is no count", 1, good},
		{values(`["9223372036854775808","x"]`), "stream 1, entry 2: timestamp: it is no count", 1, good},
		{values(`["1",{"x":["y"]}]`), "stream 1, entry 2: line: it is an object, not a string", 1, good},
		{values(`["1",null]`), "stream 1, entry 2: line: it is null, not a string", 1, good},
		{values(`["1"]`), "stream 1, entry 2: it has no timestamp and line", 1, good},
		{values(`[]`), "stream 1, entry 2: it has no timestamp and line", 1, good},
		{values(`"x"`), "stream 1, entry 2: it is a string, not an array", 1, good},
		{values(`{"ts":"1"}`), "stream 1, entry 2: it is an object, not an array", 1, good},
		{values(`["1","x","y"]`), "stream 1, entry 2: structured metadata is a string, not an object", 1, good},
		{values(`["1","x",{"a":1,"b":2}]`), "stream 1, entry 2: structured metadata: 1: it is a number, not a string", 1, good},
		{values("[\"1\",\"\xff\xfe\"]"), "stream 1, entry 2: line: text is not valid UTF-8", 1, good},
		{values(`["1","\ud800 x"]`), "stream 1, entry 2: line: text escapes half of a surrogate pair", 1, good},
		{values(`["1","x",{"` + "\xff" + `":"y"}]`), "stream 1, entry 2: structured metadata: 1: text is not valid UTF-8", 1, good},
		{`{"streams":[7,{"stream":{},"values":[["1","good"]]}]}`, "stream 1: it is a number, not an object", 0, after},
		{`{"streams":[{"stream":{"a":1},"values":[["1","x"],["2","y"]]},{"values":[["1","good"]]}]}`, "stream 1: label 1: it is a number, not a string", 2, after},
		{`{"streams":[{"values":[["1","x"]],"stream":["a"]},{"values":[["1","good"]]}]}`, "stream 1: its labels are an array, not an object", 1, after},
		{`{"streams":[{"stream":{},"values":{}},{"values":[["1","good"]]}]}`, "stream 1: values is an object, not an array", 0, after},
		{`{"streams":[{"labels":"{a=\"b\"}","entries":[{"ts":"x","line":"y"}]},{"values":[["1","good"]]}]}`, `stream 1: there is no "values"`, 0, after},
		{`{"streams":[{"stream":{},"values":[["1","good"]],"values":[["2","x"],["3","y"]]}]}`, `stream 1: "stream" or "values" stands twice`, 2, after},
	} {
		var got collector
		require.NoError(t, DecodeLokiJSON([]byte(c.body), testLimit, &got), c.body)
		if assert.Len(t, got.problems, 1, c.body) {
			assert.Contains(t, got.problems[0], c.problem, c.body)
		}
		assert.Equal(t, c.refused, got.refused, c.body)
		assert.Equal(t, c.want, got.streams, c.body)
	}
}

func TestDecodeLokiJSONFails(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]string{
		``:                   `invalid JSON at byte 0: it ends where { is needed`,
		`[]`:                 `invalid JSON at byte 0: '[' stands where { is needed`,
		`{}`:                 ErrNoStreams.Error(),
		`{"logs":[{}]}`:      ErrOtherForm.Error(),
		`{"streams":null}`:   ErrNoStreams.Error(),
		`{"streams":{}}`:     `streams is an object, not an array`,
		`{"streams":[{}]} x`: `invalid JSON at byte 17: 'x' stands where nothing is needed`,
		`{"streams":[{"stream":{"a":"b"},"values":[["1","x"],["2","y`:              `stream 1, entry 2: invalid JSON at byte 59: it ends where the end of the string is needed`,
		`{"streams":[{"values":[["1","x` + "\n" + `"]]}]}`:                         `stream 1: invalid JSON at byte 30: '\n' stands where a character that needs no escape is needed`,
		`{"streams":[{"stream":{},"values":[["1","x\z"]]}]}`:                       `stream 1, entry 1: invalid JSON at byte 42: invalid escape in a string`,
		`{"streams":[{"stream":{"a" "b"}}]}`:                                       `stream 1: invalid JSON at byte 27: '"' stands where ":" is needed`,
		`{"streams":` + strings.Repeat("[", 100_000):                               `stream 1: invalid JSON at byte 524: it is nested deeper than 512`,
		`{"x":` + strings.Repeat("[", 100_000):                                     `nested deeper than 512`,
		`{"streams":[{"values":[["1","x",{"a":` + strings.Repeat(`{"a":`, 100_000): `nested deeper than 512`,
	} {
		var got collector
		assert.ErrorContains(t, DecodeLokiJSON([]byte(body), testLimit, &got), want, "%.80s", body)
	}
}

func TestHandlerErrorEndsDecoding(t *testing.T) {
	t.Parallel()
	stop := errors.New("stop")
	streams := []pushes.Stream{streamOf(labels("a", "b"), entry(1, "x"), entry(2, "y"))}
	body, err := pushes.Loki(nil, streams)
	require.NoError(t, err)
	assert.Equal(t, stop, DecodeLokiJSON(body, testLimit, &collector{fail: stop}))
	assert.Equal(t, stop, DecodeLokiProto(pushes.LokiProto(nil, streams), testLimit, &collector{fail: stop}))
}

// TestCorpus decodes each file of testdata/push. Its name tells the result.
func TestCorpus(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/push/*.json")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, name := range files {
		body, err := os.ReadFile(name)
		require.NoError(t, err)
		var got collector
		require.NoError(t, DecodeLokiJSON(body, testLimit, &got), name)
		assert.Empty(t, got.problems, name)
		again, err := pushes.Loki(nil, got.streams)
		require.NoError(t, err)
		var back collector
		require.NoError(t, DecodeLokiJSON(again, testLimit, &back))
		assert.Equal(t, got.streams, back.streams, name)
	}
}

func benchStreams(n int) []pushes.Stream {
	streams := []pushes.Stream{{Labels: labels("app", "idp", "env", "prod", "host", "idp-1")}, {Labels: labels("app", "idp", "realm", "prod-eu-1")}}
	for i := range n {
		s := &streams[i%2]
		s.Entries = append(s.Entries, entry(1750000000000000000+int64(i), benchLine(i)))
	}
	return streams
}

// benchLine is an event of 617 bytes, like those of the comparison rig.
func benchLine(i int) string {
	line := fmt.Sprintf(`{"event_id":"evt-abcdef-%010d","ts":"2025-06-01T00:00:00.000Z","tenant":"t-042","realm":"prod-eu-3","type":"LOGIN","actor":{"user_id":"u-012345","username":"user012345@example.test","session":"0123456789abcdef0123456789abcdef"},"src":{"ip":"10.1.2.3","port":43210,"ua":"Mozilla/5.0 (Macintosh; Intel Mac OS X 14_5) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/17.5 Safari/605.1.15","geo":"DE"},"auth":{"method":"password+totp","client_id":"mobile-android","result":"ok","reason":""},"req":{"id":"0123456789abcdef","path":"/realms/prod-eu-3/protocol/openid-connect/token","status":200,"ms":123},"host":"idp-3.internal"}`, i)
	return line
}

type nullHandler struct{ entries, bytes int }

func (h *nullHandler) Stream([]relay.Label) error { return nil }
func (h *nullHandler) Entry(_ Place, e *Entry) error {
	h.entries++
	h.bytes += len(e.Body)
	return nil
}
func (h *nullHandler) Refuse(Problem) error { return nil }

func BenchmarkDecodeLokiJSON(b *testing.B) {
	for _, n := range []int{1, 100} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			body, err := pushes.Loki(nil, benchStreams(n))
			require.NoError(b, err)
			buf := make([]byte, len(body))
			var h nullHandler
			b.ReportAllocs()
			for b.Loop() {
				copy(buf, body)
				if err := DecodeLokiJSON(buf, testLimit, &h); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/event")
		})
	}
}

func BenchmarkDecodeLokiProto(b *testing.B) {
	body := pushes.LokiProto(nil, benchStreams(100))
	var h nullHandler
	b.ReportAllocs()
	for b.Loop() {
		if err := DecodeLokiProto(body, testLimit, &h); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*100), "ns/event")
}

func TestDecodersDoNotAllocatePerEntry(t *testing.T) {
	streams := benchStreams(1000)
	body, err := pushes.Loki(nil, streams)
	require.NoError(t, err)
	buf := make([]byte, len(body))
	raw := pushes.LokiProto(nil, streams)
	var h nullHandler
	assert.Less(t, testing.AllocsPerRun(20, func() {
		copy(buf, body)
		_ = DecodeLokiJSON(buf, testLimit, &h)
	}), 10.0)
	assert.Less(t, testing.AllocsPerRun(20, func() { _ = DecodeLokiProto(raw, testLimit, &h) }), 10.0)
}

func TestLabelLimits(t *testing.T) {
	limit := LabelLimit{Count: 2, Bytes: 10}
	three, long := labels("a", "1", "b", "2", "c", "3"), labels("a", "1", "b", "12345678")
	streams := []pushes.Stream{
		{Labels: labels("a", "1", "b", "1234567"), Entries: []pushes.Entry{entry(1, "good", "a", "1", "b", "2"), entry(2, "three", "a", "1", "b", "2", "c", "3"), entry(3, "long", "a", "1", "b", "12345678")}},
		{Labels: three, Entries: []pushes.Entry{entry(1, "x"), entry(2, "y")}},
		{Labels: long, Entries: []pushes.Entry{entry(1, "z")}},
	}
	body, err := pushes.Loki(nil, streams)
	require.NoError(t, err)
	for name, decode := range map[string]func(h Handler) error{
		"json":  func(h Handler) error { return DecodeLokiJSON(body, limit, h) },
		"proto": func(h Handler) error { return DecodeLokiProto(pushes.LokiProto(nil, streams), limit, h) },
	} {
		var got collector
		require.NoError(t, decode(&got), name)
		require.Len(t, got.streams, 1, name)
		require.Len(t, got.streams[0].Entries, 1, name)
		assert.Equal(t, "good", string(got.streams[0].Entries[0].Line), name)
		refused := fmt.Sprint(got.problems)
		for _, want := range []string{"stream 1, entry 2: ", "stream 1, entry 3: ", "stream 2: ", "stream 3: "} {
			assert.Contains(t, refused, want, name)
		}
		assert.Equal(t, 2, strings.Count(refused, "at most 2 labels or attributes are taken"), refused)
		assert.Equal(t, 2, strings.Count(refused, "at most 10 bytes of labels or attributes are taken"), refused)
	}
}
