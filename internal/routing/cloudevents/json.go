// Package cloudevents writes events in the JSON event format of CloudEvents 1.0.2
// ("structured" content mode) and in its JSON batch format. All sinks share this encoder.
package cloudevents

import (
	"bytes"
	"encoding/base64"
	"strings"
	"unicode/utf8"

	"github.com/auditrelay/auditrelay/internal/jsontext"
	"github.com/auditrelay/auditrelay/relay"
)

// MediaType is the content type of one event in this format.
const MediaType = "application/cloudevents+json"

// Start is how every output of [AppendJSON] begins.
const Start = beforeID + `"`

const beforeID = `{"specversion":"` + relay.SpecVersion + `","id":`

// AppendJSON appends e as one JSON object on one line, without a line end. The member
// data holds a JSON body as it is, and text as a JSON string. If neither gives the body
// back byte for byte, data_base64 holds it.
func AppendJSON(dst []byte, e *relay.Event) []byte {
	var x Encoder
	return x.Append(dst, e)
}

// appendBody appends the body in the first of these forms that gives it back byte for byte:
// JSON, a JSON string, base64. For an empty body it appends no member.
func appendBody(dst []byte, e *relay.Event, isJSON bool) []byte {
	switch {
	case len(e.Body) == 0:
		return dst
	case isJSON && embeddable(e.Body):
		dst = append(dst, `,"data":`...)
		return append(dst, e.Body...)
	case !isJSON && utf8.Valid(e.Body):
		dst = append(dst, `,"data":`...)
		return jsontext.AppendString(dst, e.Body)
	}
	dst = append(dst, `,"data_base64":"`...)
	dst = base64.StdEncoding.AppendEncode(dst, e.Body)
	return append(dst, '"')
}

// embeddable reports whether a line can hold body as it is.
func embeddable(body []byte) bool {
	first, last := body[0], body[len(body)-1]
	if first == ' ' || first == '\t' || last == ' ' || last == '\t' {
		return false // a reader would take it for space around the value
	}
	return bytes.IndexByte(body, '\n') < 0 && bytes.IndexByte(body, '\r') < 0 &&
		valid(body)
}

// valid reports whether body is JSON in UTF-8, nested at most jsontext.MaxDepth deep. Many
// readers refuse deeper values (Jackson beyond 1,000), and with them all of a batch.
func valid(body []byte) bool {
	var scan jsontext.Scanner
	scan.Reset(body)
	return scan.Skip() == nil && scan.End() == nil && (scan.ASCII() || utf8.Valid(body))
}

// DeclaresJSON reports whether CloudEvents' JSON format, 3.1, regards data of the content type
// as JSON: the subtype is json or ends in +json. No content type at all also means JSON.
func DeclaresJSON(contentType string) bool {
	mediaType, _, _ := strings.Cut(contentType, ";")
	mediaType = strings.TrimSpace(mediaType)
	if mediaType == "" || strings.EqualFold(mediaType, "application/json") {
		return true
	}
	_, subtype, _ := strings.Cut(mediaType, "/")
	subtype = strings.ToLower(subtype)
	return subtype == "json" || strings.HasSuffix(subtype, "+json")
}
