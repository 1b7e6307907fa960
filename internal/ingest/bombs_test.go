package ingest

import (
	"bytes"
	"net/http"
	"net/url"
	"runtime"
	"strings"
	"testing"

	"github.com/klauspost/compress/snappy"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protowire"
)

// bomb is a small push with a large decoded form.
type bomb struct {
	name, path string
	header     header
	body       []byte
}

// protoBomb is a push of one stream with raw as its only entry.
func protoBomb(labels string, entry []byte) []byte {
	stream := protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), []byte(labels))
	stream = protowire.AppendBytes(protowire.AppendTag(stream, 2, protowire.BytesType), entry)
	return snappy.Encode(nil, protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), stream))
}

func bombs(t testing.TB, size int) []bomb {
	entry := []byte{0x0a, 2, 8, 1, 0x12, 2, 'h', 'i'} // a time of one second, and a line
	emptyPairs := append(bytes.Clone(entry), bytes.Repeat([]byte{0x1a, 0}, size/2)...)
	many := func(piece string) string { return strings.TrimSuffix(strings.Repeat(piece, size/len(piece)), ",") }
	proto := header{"Content-Type": "application/x-protobuf"}
	json := asJSON
	zipped := func(h header) header { return h.with("Content-Encoding", "gzip") }
	const loki, datadog = "/loki/api/v1/push", "/api/v2/logs"
	return []bomb{
		{"gzip of snappy of empty metadata pairs", loki, zipped(proto), gzipOf(t, protoBomb(`{a="b"}`, emptyPairs))},
		{"label text", loki, zipped(proto), gzipOf(t, protoBomb("{"+many(`a="",`)+"}", entry))},
		{"one escaped label", loki, zipped(proto), gzipOf(t, protoBomb(`{a="`+many(`\n`)+`"}`, entry))},
		{"JSON labels", loki, zipped(json), gzipOf(t, []byte(`{"streams":[{"stream":{`+many(`"":"",`)+`},"values":[["1","x"]]}]}`))},
		{"JSON metadata", loki, zipped(json), gzipOf(t, []byte(`{"streams":[{"stream":{},"values":[["1","x",{`+many(`"":"",`)+`}]]}]}`))},
		{"tags", datadog, zipped(json), gzipOf(t, []byte(`{"message":"x","ddtags":"`+many(`a,`)+`"}`))},
		{"escaped tags", datadog, zipped(json), gzipOf(t, []byte(`{"message":"x","ddtags":"`+many(`\n,`)+`"}`))},
		{"repeated service", datadog, zipped(json), gzipOf(t, []byte(`{"message":"x",`+many(`"service":"",`)+`}`))},
		{"attributes beside an event", datadog, zipped(json), gzipOf(t, []byte(`{"message":"{\"event_id\":\"1\"}",`+many(`"":1,`)+`}`))},
		{"an escaped message", datadog, zipped(json), gzipOf(t, []byte(`{"message":"{`+many(`\n`)+`"}`))},
		{"an escaped key", datadog, zipped(json), gzipOf(t, []byte(`{"`+many(`\n`)+`":1}`))},
		{"tags in the URL", datadog + "?ddtags=" + many(`a,`)[:min(size, 8<<10)], json, []byte(`{"message":"x"}`)},
	}
}

// Each decodes to some 2 MiB, and to a multiple in a careless decoder. All pushes
// together may hold 10 MiB.
func TestLabelBombs(t *testing.T) {
	const size, most = 2 << 20, 10 << 20
	for _, b := range bombs(t, size) {
		t.Run(b.name, func(t *testing.T) {
			r := start(t, func(o *Options) { o.Limits.DecompressedBytes, o.Limits.InFlightBytes = 3<<20, most })
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			answer := r.send(t, http.MethodPost, b.path, b.header, b.body)
			runtime.ReadMemStats(&after)
			took := after.TotalAlloc - before.TotalAlloc
			t.Logf("%d bytes: %d, %d MiB allocated: %s", len(b.body), answer.status, took>>20, answer.body)
			assert.Contains(t, []int{http.StatusBadRequest, http.StatusRequestEntityTooLarge}, answer.status)
			assert.Less(t, took, uint64(most), "bytes allocated")
			require.Zero(t, r.handler.memory.used.Load())
		})
	}
}

func TestQueryValue(t *testing.T) {
	for _, query := range []string{
		"", "a", "a=", "a=1&a=2", "b=1&a=%20x+y", "%61=1", "a=%zz&a=2", "%zz=1&a=2", "a=1;2&a=3", "a;b=1&a=2", "&&a=1", "a=b=c",
	} {
		values, _ := url.ParseQuery(query)
		assert.Equal(t, values.Get("a"), queryValue(query, "a"), query)
	}
}

// A push above the budget of all pushes is refused for good: trying again would not help.
func TestPushAboveTheBudget(t *testing.T) {
	r := start(t, func(o *Options) { o.Limits.InFlightBytes = 1 << 20 })
	body := `{"streams":[{"stream":{},"values":[["1","` + strings.Repeat("x", 60<<10) + `"]` + strings.Repeat(`,["1","`+strings.Repeat("x", 60<<10)+`"]`, 12) + `]}]}`
	answer := r.push(t, body)
	assert.Equal(t, http.StatusRequestEntityTooLarge, answer.status, answer.body)
	assert.Zero(t, r.handler.memory.used.Load())
}

// The labels of a stream come once and go to each sink with every event.
func TestLabelsTimesEvents(t *testing.T) {
	r := start(t, func(o *Options) { o.Limits.DecompressedBytes, o.Limits.Entries = 1<<20, 10_000 })
	push := func(events int) answer {
		return r.push(t, `{"streams":[{"stream":{"a":"`+strings.Repeat("x", 10<<10)+`"},"values":[["1","x"]`+strings.Repeat(`,["1","x"]`, events-1)+`]}]}`)
	}
	assert.Equal(t, http.StatusNoContent, push(800).status)
	answer := push(900)
	assert.Equal(t, http.StatusRequestEntityTooLarge, answer.status)
	assert.Contains(t, answer.body, "the labels of the body's entries are too many")
	assert.Equal(t, 800, r.journal.taken())
}
