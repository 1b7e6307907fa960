package ingest

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/journal"
	"github.com/auditrelay/auditrelay/internal/journal/record"
)

const good = `{"streams":[{"stream":{"a":"b"},"values":[["1","x"]]}]}`

func TestBadInput(t *testing.T) {
	t.Parallel()
	r := start(t)
	loki, logs, input := "/loki/api/v1/push", "/api/v2/logs", "/v1/input"
	asProto := header{"Content-Type": "application/x-protobuf"}
	huge := strings.Repeat("x", 1<<20)
	packed := gzipOf(t, []byte(good))
	for name, c := range map[string]struct {
		method, path string
		header       header
		body         []byte
		status       int
		text         string
	}{
		"get":                    {"GET", loki, asJSON, nil, 405, "push with POST"},
		"put":                    {"PUT", logs, asJSON, nil, 405, "push with POST"},
		"unknown path":           {"POST", "/api/prom/push", asJSON, nil, 404, "push to /loki/api/v1/push, /api/v2/logs or /v1/input"},
		"path behind a key":      {"POST", "/v1/input/key/more", asJSON, nil, 404, "push to"},
		"no credential":          {"POST", loki, asJSON.with("Authorization", ""), []byte(good), 401, "a credential is missing"},
		"wrong password":         {"POST", loki, asJSON.with("Authorization", "Basic dXNlcjp3cm9uZw=="), []byte(good), 401, "the credential is not valid"},
		"no basic":               {"POST", loki, asJSON.with("Authorization", "Bearer x"), []byte(good), 401, "the credential is not valid"},
		"wrong key":              {"POST", logs, asJSON.with("DD-API-KEY", "wrong"), []byte(`[]`), 403, "the credential is not valid"},
		"wrong key in the path":  {"POST", "/v1/input/wrong", asJSON, []byte(`[]`), 403, `{"code":403,"message":"the credential is not valid"}`},
		"no key":                 {"POST", logs, asJSON.with("Authorization", ""), []byte(`[]`), 401, "a credential is missing"},
		"content type":           {"POST", loki, header{"Content-Type": "text/plain"}, []byte(good), 415, `Content-Type "text/plain" is not supported: application/json or application/x-protobuf`},
		"no content type":        {"POST", loki, header{}, []byte(good), 415, `Content-Type "" is not supported`},
		"datadog content type":   {"POST", logs, header{"Content-Type": "application/x-protobuf"}, []byte(`[]`), 415, "is not supported: application/json"},
		"content encoding":       {"POST", loki, asJSON.with("Content-Encoding", "br"), []byte(good), 415, `Content-Encoding \"br\" is not supported`},
		"snappy json":            {"POST", loki, asJSON.with("Content-Encoding", "snappy"), []byte(good), 415, "is not supported"},
		"oversize body":          {"POST", loki, asJSON, []byte(huge + "x"), 413, "the body has 1048577 bytes, at most 1048576 are taken"},
		"truncated gzip":         {"POST", loki, asJSON.with("Content-Encoding", "gzip"), packed[:len(packed)-9], 400, "the body is no gzip: unexpected EOF"},
		"no gzip":                {"POST", loki, asJSON.with("Content-Encoding", "gzip"), []byte(good), 400, "the body is no gzip: gzip: invalid header"},
		"broken gzip":            {"POST", loki, asJSON.with("Content-Encoding", "gzip"), append(packed[:len(packed)-8:len(packed)-8], "deadbeef"...), 400, "the body is no gzip: gzip: invalid checksum"},
		"no deflate":             {"POST", logs, asJSON.with("Content-Encoding", "deflate"), []byte("\xff\xff"), 400, "the body is no deflate"},
		"broken zlib":            {"POST", logs, asJSON.with("Content-Encoding", "deflate"), []byte("\x78\x9c\xff\xff"), 400, "the body is no deflate"},
		"no zstd":                {"POST", logs, asJSON.with("Content-Encoding", "zstd"), []byte(good), 400, "the body is no zstd"},
		"truncated zstd":         {"POST", logs, asJSON.with("Content-Encoding", "zstd"), zstdOf(t, []byte(good))[:12], 400, "the body is no zstd"},
		"no snappy":              {"POST", loki, asProto, []byte(good), 400, "the body is no snappy block"},
		"lying snappy length":    {"POST", loki, asProto, []byte{0xff, 0xff, 0xff, 0x7f, 0, 0}, 400, "its length lies"},
		"snappy length of 3 GiB": {"POST", loki, asProto, append([]byte{0xff, 0xff, 0xff, 0xff, 0x0b}, make([]byte, 200_000)...), 400, "its length lies"},
		"snappy too large":       {"POST", loki, asProto, append([]byte{0xff, 0xff, 0xff, 0x04}, make([]byte, 600_000)...), 413, "the body has 10485759 bytes when decompressed, at most 4194304 are taken"},
		"broken proto":           {"POST", loki, asProto, []byte{3, 8, 0x0a, 0x7f, 0x00}, 400, "invalid protobuf: unexpected EOF"},
		"empty proto":            {"POST", loki, asProto, []byte{0}, 422, "the push has no streams"},
		"empty":                  {"POST", loki, asJSON, nil, 400, "invalid JSON at byte 0: it ends where { is needed"},
		"no streams":             {"POST", loki, asJSON, []byte(`{"streams":[]}`), 422, "the push has no streams"},
		"array":                  {"POST", loki, asJSON, []byte(`[]`), 400, "invalid JSON at byte 0"},
		"cut":                    {"POST", loki, asJSON, []byte(good[:len(good)-8]), 400, "stream 1, entry 1: invalid JSON at byte 47"},
		"legacy form":            {"POST", loki, asJSON, []byte(`{"streams":[{"labels":"{}","entries":[{"ts":"x"}]}]}`), 400, `0 entries were taken, 0 were not: stream 1: there is no "values"`},
		"invalid UTF-8":          {"POST", loki, asJSON, []byte(`{"streams":[{"values":[["1","` + "\xff" + `"]]}]}`), 400, "0 entries were taken, 1 were not: stream 1, entry 1: line: text is not valid UTF-8"},
		"deep JSON":              {"POST", loki, asJSON, []byte(`{"x":` + strings.Repeat("[", 500_000)), 400, "nested deeper than 512"},
		"deep entry":             {"POST", loki, asJSON, []byte(`{"streams":[{"values":[` + strings.Repeat("[", 500_000)), 400, "nested deeper than 512"},
		"line too long":          {"POST", loki, asJSON, []byte(`{"streams":[{"values":[["1","` + huge[:70_000] + `"]]}]}`), 400, "0 entries were taken, 1 were not: stream 1, entry 1: the line has 70000 bytes, at most 65536 are taken"},
		"too many entries":       {"POST", loki, asJSON, []byte(`{"streams":[{"values":[` + strings.Repeat(`["1","x"],`, 1000) + `["1","x"]]}]}`), 413, "the push has more than the allowed 1000 entries"},
		"too many bad entries":   {"POST", loki, asJSON, []byte(`{"streams":[` + strings.Repeat(`{},`, 300_000) + `{}]}`), 413, "the push has more than the allowed 1000 entries"},
		"many bad entries":       {"POST", loki, asJSON, []byte(`{"streams":[{"values":[` + strings.Repeat(`1,`, 99) + `1]}]}`), 400, "stream 1, entry 5: it is a number, not an array; and 95 more"},
		"empty logs":             {"POST", logs, asJSON, nil, 400, `{"errors":[{"status":"400","title":"Bad Request","detail":"the push is empty"}]}`},
		"no logs":                {"POST", input, asJSON, []byte("hello"), 400, `{"code":400,"message":"invalid JSON at byte 0: 'h' stands where { is needed"}`},
	} {
		got := r.send(t, c.method, c.path, c.header, c.body)
		assert.Equal(t, c.status, got.status, "%s: %s", name, got.body)
		assert.Contains(t, strings.ReplaceAll(got.body, `"br"`, `\"br\"`), c.text, name)
		assert.LessOrEqual(t, len(got.body), 1500, name)
		assert.Equal(t, map[bool]string{true: `Basic realm="auditrelay"`}[c.status == 401], got.header.Get("WWW-Authenticate"), name)
		assert.Equal(t, map[bool]string{true: "POST"}[c.status == 405], got.header.Get("Allow"), name)
	}
	assert.Zero(t, r.journal.taken())
	assert.Zero(t, r.handler.memory.used.Load())
	for _, secret := range []string{"correct horse", "wrong", "dXNlcjp3cm9uZw", "x-secret"} {
		assert.NotContains(t, r.log.String(), secret)
	}
}

func TestNothingToTake(t *testing.T) {
	t.Parallel()
	r := start(t, func(o *Options) { o.Journal = &fakeJournal{err: errors.New("must not be called")} })
	assert.Equal(t, http.StatusNoContent, r.push(t, `{"streams":[{"stream":{"a":"b"},"values":[]}]}`).status)
	assert.Equal(t, http.StatusAccepted, r.send(t, "POST", "/api/v2/logs", asJSON, []byte(`[]`)).status)
	assert.True(t, r.arrived().LastPush.IsZero())
}

// TestJournalFails pushes a bad entry as well: the journal's failure decides the answer.
func TestJournalFails(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err        error
		status     int
		retryAfter string
		text       string
	}{
		{fmt.Errorf("append: %w", journal.ErrFull), 503, "5", "the journal is full\n"},
		{errors.New("nats: some secret host is down"), 503, "5", "the journal is unavailable\n"},
		{record.ErrTooLarge, 413, "", "event is too large for the journal\n"},
	} {
		r := start(t, func(o *Options) { o.Journal = &fakeJournal{err: c.err} })
		for _, body := range []string{good, `{"streams":[{"values":[["1","x"],[2,"y"]]}]}`} {
			got := r.push(t, body)
			assert.Equal(t, c.status, got.status)
			assert.Equal(t, c.retryAfter, got.header.Get("Retry-After"))
			assert.Equal(t, c.text, got.body)
		}
		assert.True(t, r.arrived().LastPush.IsZero(), "nothing was taken")
	}
}

func TestAnonymous(t *testing.T) {
	t.Parallel()
	r := start(t, func(o *Options) { o.Anonymous = testEnv })
	none := asJSON.with("Authorization", "")
	assert.Equal(t, 204, r.send(t, "POST", "/loki/api/v1/push", none, []byte(good)).status)
	assert.Equal(t, 403, r.send(t, "POST", "/api/v2/logs", none.with("DD-API-KEY", "wrong"), []byte(good)).status, "a wrong credential is none the better")
}

func TestMetricsAndLog(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_760_000_000, 0)
	r := start(t, func(o *Options) { o.Now = func() time.Time { return now } })
	for range 5 {
		r.push(t, `[`)
	}
	r.push(t, good)
	r.push(t, `{"streams":[{"values":[["1","xyz"],[2,"y"]]}]}`)
	assert.Equal(t, 1, strings.Count(r.log.String(), "reason=malformed"), "once a minute")
	now = now.Add(time.Minute)
	r.push(t, `[`)
	assert.Contains(t, r.log.String(), "unlogged_before=4")
	assert.Contains(t, r.log.String(), "project=acme environment=live reason=malformed status=400")
	const of = `{environment="live",project="acme"}`
	assert.Equal(t, map[string]float64{
		"auditrelay_ingest_bytes_total" + of:                                4,
		"auditrelay_ingest_events_total" + of:                               2,
		`auditrelay_ingest_rejected_total{reason="entry"}`:                  1,
		`auditrelay_ingest_rejected_total{reason="malformed"}`:              6,
		`auditrelay_ingest_rejected_total{reason="partial"}`:                1,
		`auditrelay_ingest_requests_total{code="204",endpoint="loki_push"}`: 1,
		`auditrelay_ingest_requests_total{code="400",endpoint="loki_push"}`: 7,
	}, aboveZero(t, r.metrics))
}

// aboveZero are the counters above 0.
func aboveZero(t *testing.T, registry *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := registry.Gather()
	require.NoError(t, err)
	above := map[string]float64{}
	for _, f := range families {
		for _, series := range f.GetMetric() {
			var labels []string
			for _, l := range series.GetLabel() {
				labels = append(labels, fmt.Sprintf("%s=%q", l.GetName(), l.GetValue()))
			}
			if value := series.GetCounter().GetValue(); value > 0 {
				above[f.GetName()+"{"+strings.Join(labels, ",")+"}"] = value
			}
		}
	}
	return above
}

// A web page cannot push without a credential, whatever name it calls the listener by.
func TestAnonymousPushesComeFromPrograms(t *testing.T) {
	t.Parallel()
	r := start(t, func(o *Options) { o.Anonymous = testEnv })
	program := asJSON.with("Authorization", "")
	for name, h := range map[string]header{
		"another site":     program.with("Origin", "https://attacker.example", "Sec-Fetch-Site", "cross-site"),
		"a name of theirs": program.with("Origin", "http://rebind.attacker.example", "Sec-Fetch-Site", "same-origin"),
		"an older browser": program.with("Origin", "null"),
		"no type":          program.with("Content-Type", ""),
	} {
		got := r.send(t, http.MethodPost, "/api/v2/logs", h, []byte(`[{"message":"x"}]`))
		require.Equal(t, http.StatusForbidden, got.status, name)
		require.Contains(t, got.body, "pushes of web pages are refused", name)
	}
	require.Zero(t, r.journal.taken())
	require.Equal(t, http.StatusAccepted, r.send(t, http.MethodPost, "/api/v2/logs", program, []byte(`[{"message":"x"}]`)).status)
	require.Equal(t, 1, r.journal.taken())
}
