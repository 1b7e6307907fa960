package ingest

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
)

// form is the format and the compression of a push.
type form struct {
	*format
	inflate inflater // nil for a body that is not compressed
}

// inflater decompresses p.body.raw into p.body.plain, at most limit bytes.
type inflater func(in *inflaters, p *push, limit int64) error

// encodings are the compressions of a body, by their names in Content-Encoding.
var encodings = map[string]inflater{
	"": nil, "identity": nil, "gzip": (*inflaters).gzipped, "x-gzip": (*inflaters).gzipped,
	"deflate": (*inflaters).deflated, "zstd": (*inflaters).zstandard,
}

// formOf reads Content-Type and Content-Encoding.
func formOf(r *http.Request, e *endpoint) (f form, err error) {
	if f.format, err = e.formatOf(r.Header.Get("Content-Type")); err != nil {
		return f, err
	}
	name := strings.ToLower(strings.TrimSpace(r.Header.Get("Content-Encoding")))
	inflate, known := encodings[name]
	if !known && (name != "snappy" || !f.snappy) {
		return f, unsupported("Content-Encoding %q is not supported: gzip, deflate, zstd or none", name)
	}
	f.inflate = inflate
	return f, nil
}

// unsupported is a 415 with the header's value, shortened.
func unsupported(text, value string) *refusal {
	if len(value) > 64 {
		value = value[:64]
	}
	return &refusal{status: http.StatusUnsupportedMediaType, reason: "unsupported", hangUp: true, text: fmt.Sprintf(text, value)}
}

// queryValue returns the first value of a name in a URL's query, like
// [net/url.Values.Get], but without a map of a stranger's making.
func queryValue(query, name string) string {
	for query != "" {
		var pair string
		pair, query, _ = strings.Cut(query, "&")
		key, value, _ := strings.Cut(pair, "=")
		if key, err := url.QueryUnescape(key); err != nil || key != name || strings.Contains(pair, ";") {
			continue
		}
		if value, err := url.QueryUnescape(value); err == nil {
			return value
		}
	}
	return ""
}
