package ingest

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
)

// format is the format of a decompressed body.
type format int

const (
	lokiJSON format = iota
	lokiProto
	datadogJSON
)

// encoding is the compression of a body.
type encoding int

const (
	identity encoding = iota
	gzipped
	deflated // zlib or raw deflate
	zstandard
)

// form is the format and the compression of a push.
type form struct {
	format   format
	encoding encoding
}

// formOf reads Content-Type and Content-Encoding.
func formOf(r *http.Request, e endpoint) (f form, err error) {
	contentType, _, _ := strings.Cut(r.Header.Get("Content-Type"), ";")
	contentType = strings.ToLower(strings.TrimSpace(contentType))
	switch {
	case e == lokiPush && contentType == "application/json":
		f.format = lokiJSON
	case e == lokiPush && (contentType == "application/x-protobuf" || contentType == "application/protobuf"):
		f.format = lokiProto
	case e == lokiPush:
		return f, unsupported("Content-Type %q is not supported: application/json or application/x-protobuf", contentType)
	case contentType == "" || contentType == "application/json" || contentType == "application/x-ndjson":
		f.format = datadogJSON
	default:
		return f, unsupported("Content-Type %q is not supported: application/json", contentType)
	}
	name := strings.ToLower(strings.TrimSpace(r.Header.Get("Content-Encoding")))
	switch name {
	case "", "identity":
	case "gzip", "x-gzip":
		f.encoding = gzipped
	case "deflate":
		f.encoding = deflated
	case "zstd":
		f.encoding = zstandard
	default:
		// Protobuf is always snappy. A client may name it, as Loki allows.
		if name != "snappy" || f.format != lokiProto {
			return f, unsupported("Content-Encoding %q is not supported: gzip, deflate, zstd or none", name)
		}
	}
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
