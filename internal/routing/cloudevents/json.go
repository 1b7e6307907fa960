// Package cloudevents writes events in the JSON event format of CloudEvents 1.0.2
// ("structured" content mode) and in its JSON batch format. All sinks share this encoder.
package cloudevents

import (
	"bytes"
	"encoding/base64"
	"strings"
	"time"
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

// Encoder does the same as [AppendJSON], but faster for the events of one push, because it
// writes their common attributes once. It keeps no event's memory. The zero value is ready to
// use.
type Encoder struct {
	clock Clock

	// The common attributes of the last event.
	received                                  time.Time
	source, project, environment, contentType []byte

	// The text of these: the members between id and type, and those between time and data.
	beforeType, afterTime []byte
	isJSON                bool // the content type declares JSON
}

// Append appends e as AppendJSON does. The members are those of [relay.Event.Attributes], in
// their order, and datacontenttype.
func (x *Encoder) Append(dst []byte, e *relay.Event) []byte {
	x.fit(e)
	dst = jsontext.AppendString(append(dst, beforeID...), e.ID)
	dst = jsontext.AppendString(append(dst, x.beforeType...), e.Type)
	dst = appendOptional(dst, `,"subject":`, e.Subject)
	dst = x.clock.Append(append(dst, `,"time":"`...), e.Time)
	dst = append(append(dst, '"'), x.afterTime...)
	return append(appendBody(dst, e, x.isJSON), '}')
}

// fit makes the common attributes those of e.
func (x *Encoder) fit(e *relay.Event) {
	if x.beforeType != nil && x.received.Equal(e.Received) && string(x.source) == e.Source && string(x.project) == e.Project &&
		string(x.environment) == e.Environment && string(x.contentType) == e.ContentType {
		return
	}
	x.received, x.isJSON = e.Received, DeclaresJSON(e.ContentType)
	x.source, x.project = append(x.source[:0], e.Source...), append(x.project[:0], e.Project...)
	x.environment, x.contentType = append(x.environment[:0], e.Environment...), append(x.contentType[:0], e.ContentType...)

	x.beforeType = append(jsontext.AppendString(append(x.beforeType[:0], `,"source":`...), e.Source), `,"type":`...)
	dst := appendOptional(x.afterTime[:0], `,"project":`, e.Project)
	dst = appendOptional(dst, `,"environment":`, e.Environment)
	dst = x.clock.Append(append(dst, `,"receivedtime":"`...), e.Received)
	x.afterTime = appendOptional(append(dst, '"'), `,"datacontenttype":`, e.ContentType)
}

func appendOptional(dst []byte, member, value string) []byte {
	if value == "" {
		return dst
	}
	return jsontext.AppendString(append(dst, member...), value)
}

// Clock writes times as time.RFC3339Nano does, in UTC. It keeps the last text: most times are of
// the same second as the one before, and those of receipt are often equal.
type Clock struct {
	second  int64
	ns      int
	text    []byte
	seconds int // bytes of text, without the fraction
}

// Append appends t.
func (c *Clock) Append(dst []byte, t time.Time) []byte {
	second, ns := t.Unix(), t.Nanosecond()
	if c.text == nil || c.second != second {
		c.text = t.UTC().AppendFormat(c.text[:0], "2006-01-02T15:04:05")
		c.second, c.ns, c.seconds = second, -1, len(c.text)
	}
	if c.ns != ns {
		c.ns, c.text = ns, append(appendFraction(c.text[:c.seconds], ns), 'Z')
	}
	return append(dst, c.text...)
}

// appendFraction appends the decimals of a second, without zeros at their end.
func appendFraction(dst []byte, ns int) []byte {
	if ns == 0 {
		return dst
	}
	digits := [10]byte{0: '.'}
	last := 0
	for i := 9; i > 0; i-- {
		digits[i] = byte('0' + ns%10)
		if last == 0 && ns%10 > 0 {
			last = i
		}
		ns /= 10
	}
	return append(dst, digits[:last+1]...)
}
