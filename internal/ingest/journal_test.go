package ingest

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/config/secret"
	"github.com/auditrelay/auditrelay/internal/journal"
	"github.com/auditrelay/auditrelay/internal/journal/record"
	"github.com/auditrelay/auditrelay/internal/testbed/journaltest"
	"github.com/auditrelay/auditrelay/internal/testbed/pushes"
	"github.com/auditrelay/auditrelay/internal/testbed/waiting"
	"github.com/auditrelay/auditrelay/relay"
)

// realJournal is an embedded one, with a source to read it.
func realJournal(t *testing.T) (*journal.Journal, *journal.Source) {
	t.Helper()
	cfg := config.Journal{StreamPrefix: "TEST", MaxBytes: 256 << 20, ReplayWindow: time.Hour, Replicas: 1}
	j := journaltest.Open(t, t.TempDir(), cfg, journaltest.Options{})
	s, err := j.Source(t.Context(), "test", relay.BatchLimit{Events: 1000, Bytes: 1 << 20})
	require.NoError(t, err)
	t.Cleanup(s.Close)
	return j.Journal, s
}

func next(t *testing.T, s *journal.Source, n int) []relay.Event {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), waiting.Stall)
	defer cancel()
	var out []relay.Event
	for len(out) < n {
		b, err := s.Next(ctx)
		require.NoError(t, err)
		out = append(out, b.Events...)
		require.NoError(t, s.Ack(ctx, b.Position))
	}
	require.Len(t, out, n)
	return out
}

// testKey is the key of the handlers in tests.
var testKey = secret.New("the key of event ids in the tests")

// hashID is the reference for generated IDs.
func hashID(source string, at int64, body string, ordinal ...uint64) string {
	h := hmac.New(sha256.New, []byte(testKey.Reveal()))
	var frame [16]byte
	binary.LittleEndian.PutUint64(frame[:8], uint64(len(source)))
	binary.LittleEndian.PutUint64(frame[8:], uint64(at))
	h.Write(frame[:])
	h.Write([]byte(source + body))
	for _, n := range ordinal {
		h.Write(binary.LittleEndian.AppendUint64(nil, n))
	}
	return "hmac-" + hex.EncodeToString(h.Sum(nil)[:16])
}

// TestEventsReachTheJournal pushes each form through a real server into a real
// journal, and reads the events back.
func TestEventsReachTheJournal(t *testing.T) {
	t.Parallel()
	j, source := realJournal(t)
	received := time.Date(2026, 11, 20, 12, 0, 0, 5000, time.UTC)
	r := start(t, func(o *Options) { o.Journal = j; o.Now = func() time.Time { return received } })
	const (
		event   = `{"action":"login","event_id":"e-1","note":"café \"x\" 😀"}`
		escaped = `{\"action\":\"login\",\"event_id\":\"e-1\",\"note\":\"caf\u00e9 \\\"x\\\" \ud83d\ude00\"}`
	)
	base := relay.Event{
		Source: "/projects/acme/environments/live", Project: "acme", Environment: "live", Type: "event_log.login", ID: "e-1",
		ContentType: record.ContentJSON, Time: time.Unix(0, 1750000000000000001), Received: received, Body: []byte(event),
	}
	stream := pushes.Stream{Labels: []relay.Label{label("app", "idp")}, Entries: []pushes.Entry{{Time: 1750000000000000001, Line: []byte(event), Meta: []relay.Label{label("trace", "t")}}}}
	lokiBody := []byte(`{"streams":[{"stream":{"app":"idp"},"values":[["1750000000000000001","` + escaped + `",{"trace":"t"}]]}]}`)
	logsBody := []byte(`[{"ddsource":"idp","ddtags":"env:prod","timestamp":1750000000000,"message":"` + escaped + `"}]`)
	viaLoki, viaLogs := base, base
	viaLoki.Labels = []relay.Label{label("app", "idp"), label("trace", "t")}
	viaLogs.Labels = []relay.Label{label("ddsource", "idp"), label("env", "prod")}
	viaLogs.Time = time.Unix(0, 1750000000000000000)
	asProto := header{"Content-Type": "application/x-protobuf"}
	apiKey := asJSON.with("Authorization", "", "DD-API-KEY", "0123456789abcdef")
	for name, c := range map[string]struct {
		path   string
		header header
		body   []byte
		want   relay.Event
	}{
		"loki json":          {"/loki/api/v1/push", asJSON.with("Content-Type", "application/json; charset=utf-8"), lokiBody, viaLoki},
		"loki json gzip":     {"/loki/api/v1/push", asJSON.with("Content-Encoding", "gzip"), gzipOf(t, lokiBody), viaLoki},
		"loki json deflate":  {"/loki/api/v1/push", asJSON.with("Content-Encoding", "deflate"), flateOf(t, lokiBody), viaLoki},
		"loki with API key":  {"/loki/api/v1/push", apiKey, lokiBody, viaLoki},
		"loki proto":         {"/loki/api/v1/push", asProto, protoOf(stream), viaLoki},
		"loki proto snappy":  {"/loki/api/v1/push", asProto.with("Content-Encoding", "snappy"), protoOf(stream), viaLoki},
		"loki proto gzip":    {"/loki/api/v1/push", asProto.with("Content-Encoding", "gzip"), gzipOf(t, protoOf(stream)), viaLoki},
		"datadog":            {"/api/v2/logs", apiKey, logsBody, viaLogs},
		"datadog no type":    {"/api/v2/logs", apiKey.with("Content-Type", ""), logsBody, viaLogs},
		"datadog basic":      {"/api/v2/logs", asJSON, logsBody, viaLogs},
		"datadog one object": {"/api/v2/logs?dd-api-key=0123456789abcdef", asJSON.with("Authorization", ""), logsBody[1 : len(logsBody)-1], viaLogs},
		"datadog gzip":       {"/api/v2/logs", apiKey.with("Content-Encoding", "gzip"), gzipOf(t, logsBody), viaLogs},
		"datadog zlib":       {"/api/v2/logs", apiKey.with("Content-Encoding", "deflate"), zlibOf(t, logsBody), viaLogs},
		"datadog flate":      {"/api/v2/logs", apiKey.with("Content-Encoding", "deflate"), flateOf(t, logsBody), viaLogs},
		"datadog zstd":       {"/api/v2/logs", apiKey.with("Content-Encoding", "zstd"), zstdOf(t, logsBody), viaLogs},
		"input":              {"/v1/input", apiKey, logsBody, viaLogs},
		"input with key":     {"/v1/input/0123456789abcdef", asJSON.with("Authorization", ""), logsBody, viaLogs},
	} {
		for range 2 { // the second time with used memory
			got := r.send(t, http.MethodPost, c.path, c.header, c.body)
			if strings.HasPrefix(c.path, "/loki") {
				require.Equal(t, answer{http.StatusNoContent, got.header, ""}, got, name)
			} else {
				require.Equal(t, answer{http.StatusAccepted, got.header, "{}"}, got, name)
			}
			e := next(t, source, 1)[0]
			e.Time, e.Received = e.Time.UTC(), e.Received.UTC()
			c.want.Time = c.want.Time.UTC()
			assert.Equal(t, c.want, e, name)
		}
	}
	assert.Equal(t, received.UnixNano(), r.arrived().LastPush.UnixNano())
	assert.Equal(t, int64(1750000000000000001), r.arrived().LastEvent.UnixNano())
	assert.Zero(t, r.handler.memory.used.Load(), "all memory is given back")
}

// TestIdentity pushes bodies with and without their own id and action.
func TestIdentity(t *testing.T) {
	t.Parallel()
	j, source := realJournal(t)
	now := time.Unix(1_760_000_000, 0)
	r := start(t, func(o *Options) { o.Journal = j; o.Now = func() time.Time { return now } })
	const src = "/projects/acme/environments/live"
	long := strings.Repeat("x", 257)
	for _, c := range []struct{ line, id, typ, content string }{
		{`{"event_id":"e","action":"member.update_v2"}`, "e", "event_log.member.update_v2", record.ContentJSON},
		{` {"event_id":"e"} `, "e", "event_log", record.ContentJSON},
		{`{"n":{"event_id":"in","action":"in"}}`, "", "event_log", record.ContentJSON},
		{`{"event_id":7,"action":["a"]}`, "", "event_log", record.ContentJSON},
		{`{"event_id":"","action":""}`, "", "event_log", record.ContentJSON},
		{`{"event_id":"` + long + `","action":"` + long + `"}`, "", "event_log", record.ContentJSON},
		{`{"event_id":"a b","action":"log in"}`, "", "event_log", record.ContentJSON},
		{`{"event_id":"a\nb","action":"log\nin"}`, "", "event_log", record.ContentJSON},
		{`{"event_id":"é"}`, "", "event_log", record.ContentJSON},
		{`{"event_id":"first","event_id":"second"}`, "first", "event_log", record.ContentJSON},
		{`{"\u0065vent_id":"escaped key","x":1}`, "", "event_log", record.ContentJSON},
		{`{"\u0065vent_id":"escaped-key"}`, "escaped-key", "event_log", record.ContentJSON},
		{`{"event_id":"cut`, "", "event_log", record.ContentText},
		{`["event_id"]`, "", "event_log", record.ContentText},
		{`event_id=e`, "", "event_log", record.ContentText},
		{``, "", "event_log", record.ContentText},
	} {
		body, err := pushes.Loki(nil, []pushes.Stream{{Entries: []pushes.Entry{{Time: 77, Line: []byte(c.line)}}}})
		require.NoError(t, err)
		require.Equal(t, http.StatusNoContent, r.push(t, string(body)).status, c.line)
		if c.id == "" {
			c.id = hashID(src, 77, c.line)
		}
		e := next(t, source, 1)[0]
		assert.Equal(t, [4]string{c.line, c.id, c.typ, c.content}, [4]string{string(e.Body), e.ID, e.Type, e.ContentType})
	}
	// Ordinals tell equal logs without a time apart.
	got := r.send(t, http.MethodPost, "/api/v2/logs?ddsource=idp&ddtags=env:prod", asJSON, []byte("{\"a\":1}\n{\"a\":1}"))
	require.Equal(t, http.StatusAccepted, got.status)
	for i, e := range next(t, source, 2) {
		assert.Equal(t, hashID(src, now.UnixNano(), `{"a":1}`, uint64(i+1)), e.ID)
		assert.Equal(t, now.UnixNano(), e.Time.UnixNano())
		assert.Equal(t, []relay.Label{label("ddsource", "idp"), label("env", "prod")}, e.Labels)
	}
}

// TestGoodBesideBad checks the order of the good entries, and their labels, with bad ones
// between them.
func TestGoodBesideBad(t *testing.T) {
	t.Parallel()
	j, source := realJournal(t)
	r := start(t, func(o *Options) { o.Journal = j; o.Limits.LineBytes = 100 })
	got := r.push(t, `{"streams":[{"stream":{"s":"1"},"values":[["1","{}"],["x","secret-line"],["2","text"],["3","{}"],["4","`+strings.Repeat("y", 101)+`"]]},`+
		`{"values":[["5","\ud800 secret"],["6","{}"]],"stream":{"s":"2"}},{"stream":{"s":3},"values":[["7","a"],["8","b"]]}]}`)
	assert.Equal(t, http.StatusBadRequest, got.status)
	assert.Equal(t, "4 entries were taken, 5 were not: "+
		"stream 1, entry 2: timestamp: it is no count of nanoseconds since 1970, in decimal, within 64 bits; "+
		"stream 1, entry 5: the line has 101 bytes, at most 100 are taken; "+
		"stream 2, entry 1: line: text escapes half of a surrogate pair; "+
		"stream 3: label 1: it is a number, not a string\n", got.body)
	type event struct{ labels, body, content string }
	var events []event
	for _, e := range next(t, source, 4) {
		events = append(events, event{e.Labels[0].Value, string(e.Body), e.ContentType})
	}
	assert.Equal(t, []event{{"1", "{}", record.ContentJSON}, {"1", "text", record.ContentText}, {"1", "{}", record.ContentJSON}, {"2", "{}", record.ContentJSON}}, events)
	assert.NotContains(t, r.log.String(), "secret")
	assert.Contains(t, r.log.String(), "reason=partial")

	logs := r.send(t, http.MethodPost, "/api/v2/logs", asJSON, []byte(`[{"a":1},"text",{"b":2}]`))
	assert.Equal(t, http.StatusBadRequest, logs.status)
	assert.Equal(t, `{"errors":[{"status":"400","title":"Bad Request","detail":"2 entries were taken, 1 were not: entry 2: it is a string, not an object"}]}`, logs.body)
	next(t, source, 2)
}

// Even with all of an event except its phone number, nobody can find the number by the
// event's id. They would need the key.
func TestAnIDDoesNotGiveTheBodyAway(t *testing.T) {
	t.Parallel()
	j, source := realJournal(t)
	r := start(t, func(o *Options) { o.Journal = j; o.IDKey = secret.New("another key") })
	require.Equal(t, http.StatusNoContent, r.push(t, lokiPushOf(`{"phone":"555-0142"}`)).status)
	e := next(t, source, 1)[0]
	for n := range 1000 {
		guess := fmt.Sprintf(`{"phone":"555-%04d"}`, n)
		plain := sha256.New()
		var frame [16]byte
		binary.LittleEndian.PutUint64(frame[:8], uint64(len(e.Source)))
		binary.LittleEndian.PutUint64(frame[8:], uint64(e.Time.UnixNano()))
		plain.Write(append(append(frame[:], e.Source...), guess...))
		require.NotContains(t, e.ID, hex.EncodeToString(plain.Sum(nil)[:16]), "the id gives %s away", guess)
		require.NotEqual(t, hashID(e.Source, e.Time.UnixNano(), guess), e.ID, guess)
	}
	assert.Regexp(t, "^hmac-[0-9a-f]{32}$", e.ID)
}
