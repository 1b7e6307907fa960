package ingest

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/auditrelay/auditrelay/internal/jsontext"
	"github.com/auditrelay/auditrelay/internal/wire"
)

// endpoint is one of the imitated intakes, with all that sets it apart from the others.
type endpoint struct {
	name string // in metrics and traces
	path string
	// keyInPath: the path may go on with a slash and an API key.
	keyInPath bool
	formats   []format
	// taken is the status for a push that was taken whole, with a JSON body unless it is empty.
	taken     int
	takenBody string
	// denied is the status for a wrong credential.
	denied int
	// refused shapes the answer to a refused push; text is the refusal's, as a JSON string. It is
	// nil for plain text.
	refused func(r *refusal, text []byte) []byte
}

// format is the format of a decompressed body.
type format struct {
	// types are the media types that announce it. The first of them is named where a push has
	// another one.
	types []string
	// snappy: the body is compressed with snappy, whatever else compresses it. A client may name
	// that, as Loki allows.
	snappy bool
	// inURL: the query of the URL has labels.
	inURL  bool
	decode func(*push) error
}

// endpoints are those that take pushes. A further format is one more row here, with its decoder.
var endpoints = []*endpoint{
	{
		name: "loki_push", path: "/loki/api/v1/push", taken: http.StatusNoContent, denied: http.StatusUnauthorized,
		formats: []format{
			{types: []string{"application/json"}, decode: func(p *push) error {
				return lokiError(wire.DecodeLokiJSON(p.body.decoded, p.labelLimit(), p))
			}},
			{types: []string{"application/x-protobuf", "application/protobuf"}, snappy: true, decode: func(p *push) error {
				return lokiError(wire.DecodeLokiProto(p.body.decoded, p.labelLimit(), p))
			}},
		},
	},
	{
		name: "datadog_v2_logs", path: "/api/v2/logs", taken: http.StatusAccepted, takenBody: "{}", denied: http.StatusForbidden,
		formats: datadogFormats, refused: func(r *refusal, text []byte) []byte {
			return fmt.Appendf(nil, `{"errors":[{"status":"%d","title":"%s","detail":%s}]}`, r.status, http.StatusText(r.status), text)
		},
	},
	{ // the older one
		name: "datadog_v1_input", path: "/v1/input", keyInPath: true, taken: http.StatusAccepted, takenBody: "{}", denied: http.StatusForbidden,
		formats: datadogFormats, refused: func(r *refusal, text []byte) []byte {
			return fmt.Appendf(nil, `{"code":%d,"message":%s}`, r.status, text)
		},
	},
}

var datadogFormats = []format{{types: []string{"application/json", "application/x-ndjson", ""}, inURL: true, decode: (*push).decodeDatadog}}

// nowhere stands for all other paths.
var nowhere = &endpoint{name: "unknown"}

// route finds the endpoint of a path, and any API key in it.
func route(path string) (*endpoint, string) {
	for _, e := range endpoints {
		rest, ok := strings.CutPrefix(path, e.path)
		if !ok {
			continue
		}
		key, more := strings.CutPrefix(rest, "/")
		if rest == "" || e.keyInPath && more && !strings.Contains(key, "/") {
			return e, key
		}
	}
	return nowhere, ""
}

// errUnknownPath names the endpoints that there are.
var errUnknownPath = func() *refusal {
	var paths []string
	for _, e := range endpoints {
		paths = append(paths, e.path)
	}
	last := len(paths) - 1
	return &refusal{
		status: http.StatusNotFound, reason: "path", hangUp: true,
		text: "there is nothing here; push to " + strings.Join(paths[:last], ", ") + " or " + paths[last],
	}
}()

// formatOf finds the format that a Content-Type announces.
func (e *endpoint) formatOf(contentType string) (*format, error) {
	contentType, _, _ = strings.Cut(contentType, ";")
	contentType = strings.ToLower(strings.TrimSpace(contentType))
	for i := range e.formats {
		if slices.Contains(e.formats[i].types, contentType) {
			return &e.formats[i], nil
		}
	}
	known := make([]string, len(e.formats))
	for i := range e.formats {
		known[i] = e.formats[i].types[0]
	}
	return nil, unsupported("Content-Type %q is not supported: "+strings.Join(known, " or "), contentType)
}

// errorBody shapes a refusal as the imitated server does.
func (e *endpoint) errorBody(r *refusal) (contentType string, body []byte) {
	if e.refused == nil {
		return "text/plain; charset=utf-8", []byte(r.text + "\n")
	}
	return "application/json", e.refused(r, jsontext.AppendString(nil, r.text))
}
