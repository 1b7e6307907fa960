package wire

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/testbed/pushes"
	"github.com/auditrelay/auditrelay/relay"
)

type datadogCollector struct {
	entries  []Entry
	problems []string
	fail     error
}

func (c *datadogCollector) Entry(_ Place, e *Entry) error {
	kept := Entry{Time: e.Time, Timed: e.Timed, Body: []byte(string(e.Body))}
	for _, l := range e.Labels {
		kept.Labels = append(kept.Labels, relay.Label{Name: strings.Clone(l.Name), Value: strings.Clone(l.Value)})
	}
	c.entries = append(c.entries, kept)
	return c.fail
}

func (c *datadogCollector) Stream([]relay.Label) error { return nil }

func (c *datadogCollector) Refuse(p Problem) error {
	c.problems = append(c.problems, p.Error())
	return nil
}

// datadogLimits are for tests of other things than limits.
var datadogLimits = DatadogLimits{Labels: LabelLimit{Count: 128, Bytes: 64 << 10}, Line: 256 << 10}

func TestDecodeDatadog(t *testing.T) {
	t.Parallel()
	const ms = int64(1_000_000)
	for name, c := range map[string]struct {
		body string
		want []Entry
	}{
		"an event in the message": {
			`[{"ddsource":"idp","ddtags":"env:prod, job:auth,solo","hostname":"h\u002d1","service":"s","status":"info","timestamp":1750000000123,"message":"{\"event_id\":\"e1\",\"n\":\"caf\u00e9\"}","extra":"a\nb","nested":{"x":[1,"y"]},"n":null}]`,
			[]Entry{{1750000000123 * ms, true, labels("ddsource", "idp", "env", "prod", "job", "auth", "solo", "", "hostname", "h-1", "service", "s", "status", "info", "extra", "a\nb", "nested", `{"x":[1,"y"]}`, "n", "null"), []byte(`{"event_id":"e1","n":"café"}`)}},
		},
		"a plain message": {
			`[{"message":"hello \"you\"","service":"s","date":"2025-06-15T15:06:40.5Z"}]`,
			[]Entry{{1750000000500 * ms, true, labels("service", "s"), []byte(`{"message":"hello \"you\"","service":"s","date":"2025-06-15T15:06:40.5Z"}`)}},
		},
		"one object":           {`{"event_id":"e","x":1}`, []Entry{{Body: []byte(`{"event_id":"e","x":1}`)}}},
		"lines":                {"{\"a\":1}\n{\"b\":2}\r\n{\"c\":3}\n", []Entry{{Body: []byte(`{"a":1}`)}, {Body: []byte(`{"b":2}`)}, {Body: []byte(`{"c":3}`)}}},
		"empty array":          {` [ ] `, nil},
		"message without id":   {`[{"message":"{\"x\":{\"event_id\":\"in\"}}"}]`, []Entry{{Body: []byte(`{"message":"{\"x\":{\"event_id\":\"in\"}}"}`)}}},
		"message with end cut": {`[{"message":"{\"event_id\":\"e\""}]`, []Entry{{Body: []byte(`{"message":"{\"event_id\":\"e\""}`)}}},
		"message is an object": {`[{"message":{"event_id":"e"}}]`, []Entry{{Body: []byte(`{"message":{"event_id":"e"}}`)}}},
		"two messages":         {`[{"message":"{\"event_id\":\"e\"}","message":"x"}]`, []Entry{{Body: []byte(`{"message":"{\"event_id\":\"e\"}","message":"x"}`)}}},
		"half a surrogate":     {`[{"message":"{\"event_id\":\"e\",\"x\":\"\ud800\"}"}]`, []Entry{{Body: []byte(`{"message":"{\"event_id\":\"e\",\"x\":\"\ud800\"}"}`)}}},
		"times not understood": {`[{"timestamp":"soon"},{"timestamp":1.5},{"timestamp":99999999999999999},{"timestamp":[1],"date":7}]`, []Entry{
			{Body: []byte(`{"timestamp":"soon"}`)},
			{Body: []byte(`{"timestamp":1.5}`)},
			{Body: []byte(`{"timestamp":99999999999999999}`)},
			{Time: 7 * ms, Timed: true, Body: []byte(`{"timestamp":[1],"date":7}`)},
		}},
		"escaped key": {`[{"\u006dessage":"{\"event_id\":\"e\"}","serv\u0069ce":"s"}]`, []Entry{{Labels: labels("service", "s"), Body: []byte(`{"event_id":"e"}`)}}},
		"odd types":   {`[{"ddtags":["a"],"service":5,"message":"{\"event_id\":\"e\"}"}]`, []Entry{{Labels: labels("ddtags", `["a"]`, "service", "5"), Body: []byte(`{"event_id":"e"}`)}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got datadogCollector
			require.NoError(t, DecodeDatadog([]byte(c.body), datadogLimits, &got))
			assert.Empty(t, got.problems)
			for i := range got.entries {
				got.entries[i].Time *= map[bool]int64{true: 1}[got.entries[i].Timed]
			}
			assert.Equal(t, c.want, got.entries)
		})
	}
}

func TestDecodeDatadogRefuses(t *testing.T) {
	t.Parallel()
	for bad, problem := range map[string]string{
		`"text"`:                   "entry 2: it is a string, not an object",
		`null`:                     "entry 2: it is null, not an object",
		`[{}]`:                     "entry 2: it is an array, not an object",
		"{\"message\":\"\xff\"}":   "entry 2: text is not valid UTF-8",
		"{\"a\":{\"\xc3\":1}}":     "entry 2: text is not valid UTF-8",
		"{\"hostname\":\"\xff\"}":  "entry 2: text is not valid UTF-8",
		"{\"message\":\"{\xff}\"}": "entry 2: text is not valid UTF-8",
		"{\"message\":\"{" + strings.Repeat("x", 2000) + "\xff}\"}": "entry 2: text is not valid UTF-8",
		"{\"a\":\"\\n" + strings.Repeat("x", 200) + "\xff\\n\"}":    "entry 2: text is not valid UTF-8",
		`{"hostname":"\udc00 x"}`:                                   "entry 2: text escapes half of a surrogate pair",
		`{"ddtags":"a:\ud800\""}`:                                   "entry 2: text escapes half of a surrogate pair",
	} {
		var got datadogCollector
		require.NoError(t, DecodeDatadog([]byte(`[{"a":1},`+bad+`,{"b":2}]`), datadogLimits, &got), bad)
		assert.Equal(t, []string{problem}, got.problems, bad)
		assert.Len(t, got.entries, 2, bad)
	}
}

func TestDecodeDatadogFails(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]string{
		``:                           ErrEmpty.Error(),
		" \n":                        ErrEmpty.Error(),
		"\x00":                       `invalid JSON at byte 0`,
		`hello`:                      `invalid JSON at byte 0: 'h' stands where { is needed`,
		`{"a":1}` + "\nhello":        `entry 1: invalid JSON at byte 8: 'h' stands where nothing is needed`,
		`[{"a":1},{"b":`:             `entry 2: invalid JSON at byte 14: it ends where a value is needed`,
		`[{"a":1}`:                   `entry 1: invalid JSON at byte 8`,
		`[{"a":1}] {}`:               `entry 1: invalid JSON at byte 10`,
		`{"a":"b` + "\n" + `"}`:      `entry 1: invalid JSON at byte 7`,
		strings.Repeat("[", 100_000): `nested deeper than 512`,
		strings.Repeat(`{"a":`, 1e5): `nested deeper than 512`,
	} {
		var got datadogCollector
		err := DecodeDatadog([]byte(body), datadogLimits, &got)
		if strings.HasPrefix(body, "[[") {
			assert.ErrorContains(t, err, want)
			continue
		}
		assert.ErrorContains(t, err, want, "%.50s", body)
	}
	stop := errors.New("stop")
	assert.Equal(t, stop, DecodeDatadog([]byte(`[{}]`), datadogLimits, &datadogCollector{fail: stop}))
}

func FuzzDecodeDatadog(f *testing.F) {
	f.Add([]byte(`[{"ddsource":"idp","ddtags":"env:prod","timestamp":1750000000123,"message":"{\"event_id\":\"e1\"}","x":{"y":1}}]`))
	f.Add([]byte("{\"a\":1}\n{\"b\":2}"))
	f.Add([]byte(`[{"date":"2025-06-15T15:06:40.5Z","message":"\ud83d\ude00"},7]`))
	f.Fuzz(func(t *testing.T, body []byte) {
		before := string(body)
		var got datadogCollector
		err := DecodeDatadog(body, datadogLimits, &got)
		require.Equal(t, before, string(body), "it must not be written to")
		for _, e := range got.entries {
			require.True(t, utf8.Valid(e.Body))
		}
		if err != nil || !strings.HasPrefix(strings.TrimSpace(before), "[") {
			return
		}
		// Compare with encoding/json: as many elements, and each body is one of
		// them, or its message.
		var elements []json.RawMessage
		require.NoError(t, json.Unmarshal(body, &elements))
		require.Len(t, elements, len(got.entries)+len(got.problems))
		i := 0
		for _, e := range got.entries {
			for ; ; i++ {
				require.Less(t, i, len(elements))
				var o struct{ Message any }
				_ = json.Unmarshal(elements[i], &o)
				if text, ok := o.Message.(string); string(elements[i]) == string(e.Body) || ok && text == string(e.Body) {
					break
				}
			}
			i++
		}
	})
}

func benchBody(tb testing.TB, n int) []byte {
	var logs []pushes.Log
	for i := range n {
		line := fmt.Sprintf(`{"event_id":"evt-abcdef-%010d","ts":"2025-06-01T00:00:00.000Z","tenant":"t-042","realm":"prod-eu-3","type":"LOGIN","actor":{"user_id":"u-012345","username":"user012345@example.test","session":"0123456789abcdef0123456789abcdef"},"src":{"ip":"10.1.2.3","port":43210,"ua":"Mozilla/5.0 (Macintosh; Intel Mac OS X 14_5) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/17.5 Safari/605.1.15","geo":"DE"},"auth":{"method":"password+totp","client_id":"mobile-android","result":"ok","reason":""},"req":{"id":"0123456789abcdef","path":"/realms/prod-eu-3/protocol/openid-connect/token","status":200,"ms":123},"host":"idp-3.internal"}`, i)
		logs = append(logs, pushes.Log{Time: 1750000000000000000, Source: "idp", Tags: "env:prod,job:auth-events", Hostname: "idp-1", Service: "idp", Status: "info", Message: []byte(line)})
	}
	body, err := pushes.Datadog(nil, logs)
	require.NoError(tb, err)
	return body
}

func TestDatadogRoundTrip(t *testing.T) {
	t.Parallel()
	var got datadogCollector
	require.NoError(t, DecodeDatadog(benchBody(t, 3), datadogLimits, &got))
	require.Len(t, got.entries, 3)
	assert.Equal(t, int64(1750000000000000000), got.entries[2].Time)
	assert.Contains(t, string(got.entries[2].Body), `{"event_id":"evt-abcdef-0000000002"`)
	assert.Equal(t, labels("ddsource", "idp", "env", "prod", "job", "auth-events", "hostname", "idp-1", "service", "idp", "status", "info"), got.entries[0].Labels)
	_, err := pushes.Datadog(nil, []pushes.Log{{}, {Message: []byte{0xff}}})
	require.EqualError(t, err, "entry 2: text is not valid UTF-8")
}

func TestDecodeDatadogDoesNotAllocatePerEntry(t *testing.T) {
	body := benchBody(t, 1000)
	var h nullHandler
	assert.Less(t, testing.AllocsPerRun(20, func() { _ = DecodeDatadog(body, datadogLimits, &h) }), 10.0)
}

func BenchmarkDecodeDatadog(b *testing.B) {
	body := benchBody(b, 100)
	var h nullHandler
	b.ReportAllocs()
	for b.Loop() {
		if err := DecodeDatadog(body, datadogLimits, &h); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*100), "ns/event")
}

func TestDatadogLimits(t *testing.T) {
	limits := DatadogLimits{Labels: LabelLimit{Count: 3, Bytes: 40}, Line: 100}
	const count, bytes = "at most 3 labels or attributes are taken", "at most 40 bytes of labels or attributes are taken"
	event := `"message":"{\"event_id\":\"e\"}"`
	long := strings.Repeat(`\n`, 300)
	for body, want := range map[string]string{
		`{"ddtags":"a,b,c"}`:   "",
		`{"ddtags":"a,b,c,d"}`: count,
		`{"ddtags":"a:1234567890123456789,b:12345678901234567890"}`:      bytes,
		`{"ddtags":"a:` + long + `"}`:                                    bytes,
		`{"service":"a","service":"a","service":"a","service":"a"}`:      count,
		`{"a":1,"b":2,"c":3,"d":4,"e":5}`:                                "", // its body has them
		`{"a":1,"b":2,"c":3,` + event + `}`:                              "",
		`{"a":1,"b":2,"c":3,"d":4,` + event + `}`:                        count,
		`{"ddtags":"x","a":1,"b":2,"c":3,` + event + `}`:                 count,
		`{"a":"1234567890123456789012345678901234567890",` + event + `}`: bytes,
		`{"` + long + `":1}`:                                             "",
		`{"message":"{` + long + long + long + `}"}`:                     "", // too long for an event of its own
	} {
		var got datadogCollector
		require.NoError(t, DecodeDatadog([]byte(body), limits, &got), "%.80s", body)
		if want == "" {
			assert.Empty(t, got.problems, "%.80s", body)
			assert.Len(t, got.entries, 1, "%.80s", body)
			continue
		}
		assert.Equal(t, []string{"entry 1: " + want}, got.problems, "%.80s", body)
	}
}
