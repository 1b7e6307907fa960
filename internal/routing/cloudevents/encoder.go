package cloudevents

import (
	"time"

	"github.com/auditrelay/auditrelay/internal/jsontext"
	"github.com/auditrelay/auditrelay/relay"
)

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
