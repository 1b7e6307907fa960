package datadog

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/config/secret"
	"github.com/auditrelay/auditrelay/relay"
	"github.com/auditrelay/auditrelay/relay/relaytest"
)

func makerOf(t testing.TB, cfg config.Datadog) *maker {
	t.Helper()
	cfg.APIKey = secret.New("key")
	require.NoError(t, (&config.Sink{Name: "test", Datadog: &cfg}).Complete())
	return newMaker(cfg)
}

func eventOf(body string) *relay.Event {
	e := relaytest.Events(1)[0]
	e.Body = []byte(body)
	return &e
}

// decode reads an entry back, with numbers as they are written. No name may occur twice.
func decode(t testing.TB, text []byte) map[string]any {
	t.Helper()
	require.True(t, utf8.Valid(text))
	names := json.NewDecoder(bytes.NewReader(text))
	_, err := names.Token()
	require.NoError(t, err)
	seen := map[string]bool{}
	for names.More() {
		name, err := names.Token()
		require.NoError(t, err)
		require.False(t, seen[name.(string)], "%q stands there twice", name)
		seen[name.(string)] = true
		require.NoError(t, names.Decode(new(json.RawMessage)))
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var out map[string]any
	require.NoError(t, d.Decode(&out))
	require.ErrorIs(t, d.Decode(new(any)), io.EOF)
	return out
}

func made(t testing.TB, m *maker, e *relay.Event) map[string]any {
	t.Helper()
	text, err := m.encoder().appendEntry([]byte("before"), e, sentAt())
	require.NoError(t, err)
	return decode(t, bytes.TrimPrefix(text, []byte("before")))
}

func TestMerged(t *testing.T) {
	t.Parallel()
	body := `{"event_id":"e-1", "action" : "oauth.start","status":"error","timestamp":"1999-01-01T00:00:00Z","source":"CLIENT",` +
		`"message":"not this","service":"nor this","host":"h","dd.trace_id":"7","ce":1,"auditrelay":2,"event":{"a":[1.50]},"":0,` +
		`"big":12345678901234567890123,"exact":1.0e+2,"html":"<a>&","\u0061b":"\ud83d\ude00","n":null,"deep":{"status":"kept"}}`
	e := eventOf(body)
	got := made(t, makerOf(t, config.Datadog{}), e)
	assert.Equal(t, body, got["message"], "the message is the body, byte for byte")
	assert.Equal(t, "auditrelay", got["ddsource"])
	assert.Equal(t, "auditrelay", got["service"])
	assert.Equal(t, "env:production,project:acme", got["ddtags"])
	assert.NotContains(t, got, "hostname")
	assert.NotContains(t, got, "auditrelay", "nothing was done to it")
	assert.Equal(t, "error", got["status"])
	assert.Equal(t, json.Number(fmt.Sprint(e.Time.UnixMilli())), got["timestamp"])
	assert.Equal(t, "oauth.start", got["action"])
	assert.Equal(t, json.Number("12345678901234567890123"), got["big"])
	assert.Equal(t, json.Number("1.0e+2"), got["exact"])
	assert.Equal(t, "<a>&", got["html"])
	assert.Equal(t, "😀", got["ab"])
	assert.Contains(t, got, "n")
	assert.Equal(t, map[string]any{"status": "kept"}, got["deep"])
	assert.Equal(t, map[string]any{
		"status": "error", "timestamp": "1999-01-01T00:00:00Z", "source": "CLIENT", "message": "not this",
		"service": "nor this", "host": "h", "dd.trace_id": "7", "ce": json.Number("1"), "auditrelay": json.Number("2"),
		"event": map[string]any{"a": []any{json.Number("1.50")}}, "": json.Number("0"),
	}, got["event"])
	want := map[string]any{"datacontenttype": e.ContentType}
	for name, value := range e.Attributes {
		want[name] = value
	}
	assert.Equal(t, want, got["ce"])
}

func TestOtherPlaces(t *testing.T) {
	t.Parallel()
	e := eventOf(`{"action":"a","status":"success","n":1.0}`)
	got := made(t, makerOf(t, config.Datadog{Attributes: "nested"}), e)
	assert.Equal(t, map[string]any{"action": "a", "status": "success", "n": json.Number("1.0")}, got["event"])
	assert.Equal(t, "success", got["status"])
	assert.NotContains(t, got, "action")

	got = made(t, makerOf(t, config.Datadog{Attributes: "none"}), e)
	assert.Equal(t, "success", got["status"])
	assert.NotContains(t, got, "action")
	assert.NotContains(t, got, "event")
	assert.NotContains(t, got, "auditrelay")
}

// A body is only a message if it is not a JSON object, or if a strict reader might refuse its
// text.
func TestBodiesWithoutFields(t *testing.T) {
	t.Parallel()
	for _, body := range []string{
		"", "null", `"text"`, "[1]", `{"a":1} {"b":2}`, `{"a":1`, `{"a":01}`, "level=info {", `{"a":1,}`,
		`{"a":"\ud800"}`, `{"a":"\udc00"}`, `{"a":"\ud800\u0041"}`, `{"\ud800x":1}`, `{"a":"` + "\x01" + `"}`,
	} {
		for _, where := range []string{"merged", "nested", "none"} {
			got := made(t, makerOf(t, config.Datadog{Attributes: where}), eventOf(body))
			assert.Equal(t, body, got["message"])
			assert.Len(t, got, 6, "%s of %q: message, ddsource, service, ddtags, timestamp, ce", where, body)
		}
	}
	got := made(t, makerOf(t, config.Datadog{}), eventOf(`{"a":"\\ud800 \\\ud83d\ude00 \n"}`))
	assert.Equal(t, `\ud800 \`+"😀 \n", got["a"], "an escaped backslash begins no escape")
}

func TestStatus(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]any{
		`{"status":"start"}`:                 "start",
		`{"st\u0061tus":"success"}`:          "success",
		`{"status":"a","status":"b"}`:        "b",
		`{"status":"a","status":1}`:          nil,
		`{"status":7}`:                       nil,
		`{"a":{"status":"x"}}`:               nil,
		`{"status":"` + long("x", 80) + `"}`: nil,
	} {
		assert.Equal(t, want, made(t, makerOf(t, config.Datadog{}), eventOf(body))["status"], body)
	}
}

func long(s string, n int) string { return strings.Repeat(s, n) }

func TestNotUTF8(t *testing.T) {
	t.Parallel()
	e := eventOf("{\"a\":\"\xff\xfe\"}")
	got := made(t, makerOf(t, config.Datadog{}), e)
	message, _ := got["message"].(string)
	body, err := base64.StdEncoding.DecodeString(message)
	require.NoError(t, err)
	assert.Equal(t, e.Body, body)
	assert.Equal(t, map[string]any{"encoding": "base64"}, got["auditrelay"])
	assert.NotContains(t, got, "a")

	e = eventOf("{}")
	e.Subject, e.Project = "a\xff", "p\xfe"
	got = made(t, makerOf(t, config.Datadog{Service: "{project}"}), e)
	assert.Equal(t, "a\uFFFD", got["ce"].(map[string]any)["subject"])
	assert.Equal(t, "p\uFFFD", got["service"])
}

func TestTemplates(t *testing.T) {
	t.Parallel()
	m := makerOf(t, config.Datadog{
		Source: "s-{type}", Service: "{project}", Hostname: "{environment}.example.com",
		Tags: []string{"team:iam", "env:{environment}", "x:{project}-{type}"},
	})
	e := eventOf("{}")
	e.Type = "a,b"
	got := made(t, m, e)
	assert.Equal(t, "s-a,b", got["ddsource"])
	assert.Equal(t, "acme", got["service"])
	assert.Equal(t, "production.example.com", got["hostname"])
	assert.Equal(t, "team:iam,env:production,x:acme-a_b", got["ddtags"], "a value cannot become a tag of its own")

	e.Environment, e.Project = "", ""
	got = made(t, m, e)
	assert.NotContains(t, got, "service")
	assert.Equal(t, "team:iam,x:-a_b", got["ddtags"], "a tag without a value is left out")

	got = made(t, makerOf(t, config.Datadog{Tags: []string{}}), e)
	assert.NotContains(t, got, "ddtags")
}

func TestWindow(t *testing.T) {
	t.Parallel()
	m, restamping := makerOf(t, config.Datadog{}), makerOf(t, config.Datadog{OutsideWindow: "restamp"})
	for _, c := range []struct {
		age  time.Duration
		want string
	}{
		{0, ""},
		{maxAge, ""},
		{-maxAhead, ""},
		{maxAge + time.Second, "older than the intake's 18 h"},
		{18 * time.Hour, "older than"},
		{50 * 365 * 24 * time.Hour, "older than"},
		{-maxAhead - time.Second, "ahead than the intake's 2 h"},
	} {
		e := eventOf(`{"a":1}`)
		e.Time = sentAt().Add(-c.age)
		_, err := m.encoder().appendEntry(nil, e, sentAt())
		got := made(t, restamping, e)
		if c.want == "" {
			require.NoError(t, err, c.age)
			assert.NotContains(t, got, "auditrelay")
			continue
		}
		require.ErrorContains(t, err, c.want)
		assert.Contains(t, err.Error(), e.Time.Format(time.RFC3339))
		assert.Contains(t, err.Error(), "outside_window: restamp")
		assert.Equal(t, json.Number(fmt.Sprint(sentAt().UnixMilli())), got["timestamp"])
		assert.Equal(t, map[string]any{"restamped": true}, got["auditrelay"])
		assert.Equal(t, e.Time.Format(time.RFC3339Nano), got["ce"].(map[string]any)["time"])
		assert.Equal(t, json.Number("1"), got["a"])
	}
	assert.Less(t, maxAge, 18*time.Hour)
	assert.Less(t, maxAhead, 2*time.Hour)
}

// A body that fits only without its fields is sent without them.
func TestAttributesOmitted(t *testing.T) {
	t.Parallel()
	body := `{"status":"error","a":"` + long("x", 600_000) + `"}`
	for _, where := range []string{"merged", "nested"} {
		got := made(t, makerOf(t, config.Datadog{Attributes: where}), eventOf(body))
		assert.True(t, body == got["message"])
		assert.NotContains(t, got, "a")
		assert.NotContains(t, got, "event")
		assert.Equal(t, "error", got["status"])
		assert.Equal(t, map[string]any{"attributes_omitted": true}, got["auditrelay"])
	}
}

func TestOversize(t *testing.T) {
	t.Parallel()
	m, truncating := makerOf(t, config.Datadog{}), makerOf(t, config.Datadog{Oversize: "truncate"})
	for name, body := range map[string]string{
		"json":       `{"status":"error","a":"` + long("x", 1_000_000) + `"}`,
		"controls":   long("\x01", 200_000),
		"quotes":     long(`"`, 600_000),
		"runes":      long("é", 600_000),
		"separators": long("\u2028", 400_000),
		"emoji":      "x" + long("😀", 300_000),
		"not UTF-8":  long("\xff", 900_000),
	} {
		e := eventOf(body)
		kept, err := m.encoder().appendEntry([]byte("kept"), e, sentAt())
		assert.Equal(t, "kept", string(kept), "a refused entry leaves nothing behind")
		require.ErrorContains(t, err, "larger than the intake's 1 MB", name)
		assert.Contains(t, err.Error(), "oversize: truncate")

		text, err := truncating.encoder().appendEntry(nil, e, sentAt())
		require.NoError(t, err, name)
		assert.LessOrEqual(t, len(text), maxEntryBytes, name)
		assert.Greater(t, len(text), maxEntryBytes-30, "%s: room is left", name)
		got := decode(t, text)
		message, _ := got["message"].(string)
		marks, _ := got["auditrelay"].(map[string]any)
		if marks["encoding"] != nil {
			raw, err := base64.StdEncoding.DecodeString(message)
			require.NoError(t, err)
			message = string(raw)
		} else {
			assert.True(t, utf8.ValidString(message))
			assert.NotContains(t, message, "\uFFFD")
		}
		assert.True(t, strings.HasPrefix(body, message) && len(message) < len(body), name)
		assert.Equal(t, true, marks["truncated"])
		assert.Equal(t, json.Number(fmt.Sprint(len(body))), marks["original_size"])
	}
	e := eventOf(long("x", 2_000_000))
	e.Subject = long("s", 1_000_000)
	_, err := truncating.encoder().appendEntry(nil, e, sentAt())
	require.ErrorContains(t, err, "without its message", "nothing that could be cut helps")
}

// The test finds the largest accepted body by bisection: on the wire it must be within the
// limit, and the next larger one must not be far above it.
func TestSizeIsTight(t *testing.T) {
	t.Parallel()
	m := makerOf(t, config.Datadog{Attributes: "none"})
	low, high := 0, 2_000_000
	for high-low > 1 {
		mid := (low + high) / 2
		if _, err := m.encoder().appendEntry(nil, eventOf(long("\"", mid)), sentAt()); err == nil {
			low = mid
		} else {
			high = mid
		}
	}
	text, err := m.encoder().appendEntry(nil, eventOf(long("\"", low)), sentAt())
	require.NoError(t, err)
	size := len(text)
	assert.LessOrEqual(t, size, maxEntryBytes)
	assert.Greater(t, size, maxEntryBytes-30)
}

func TestEventIsNotChanged(t *testing.T) {
	t.Parallel()
	e := eventOf(`{"status":"x", "a" : "<b>", "z":1}`)
	before := string(e.Body)
	for _, where := range []string{"merged", "nested", "none"} {
		made(t, makerOf(t, config.Datadog{Attributes: where}), e)
		assert.Equal(t, before, string(e.Body))
	}
}
