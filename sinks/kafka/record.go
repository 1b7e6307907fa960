package kafka

import (
	"encoding/binary"
	"time"

	"github.com/auditrelay/auditrelay/internal/cloudevents"
	"github.com/auditrelay/auditrelay/relay"
)

// record is the content of one Kafka record, in memory that is used again.
type record struct {
	key     []byte // nil: none
	value   []byte
	headers []byte // encoded
	count   int    // of headers

	keyMemory []byte
	object    []byte // in structured mode, the value
}

// form is what a record is made of.
type form struct {
	key        keyFunc
	structured bool // one JSON object; else the body, with headers
}

// set makes r the record of e.
func (r *record) set(e *relay.Event, f form) {
	r.headers, r.count = r.headers[:0], 0
	if r.key = f.key(r.keyMemory[:0], e); r.key != nil {
		r.keyMemory = r.key
	}
	if f.structured {
		r.object = cloudevents.AppendJSON(r.object[:0], e)
		r.value = r.object
		r.header("content-type", cloudevents.MediaType)
		return
	}
	r.value = e.Body
	r.addHeaders(e)
}

// append appends r as it stands in a batch: its time and offset count from the
// batch's first record's.
func (r *record) append(dst []byte, milliseconds, offset int64) []byte {
	const attributes = 1
	length := attributes + varintLen(milliseconds) + varintLen(offset) + r.keyLen() +
		varintLen(int64(len(r.value))) + len(r.value) + varintLen(int64(r.count)) + len(r.headers)
	dst = binary.AppendVarint(dst, int64(length))
	dst = append(dst, 0)
	dst = binary.AppendVarint(dst, milliseconds)
	dst = binary.AppendVarint(dst, offset)
	if r.key == nil {
		dst = binary.AppendVarint(dst, -1)
	} else {
		dst = binary.AppendVarint(dst, int64(len(r.key)))
		dst = append(dst, r.key...)
	}
	// An event with an empty body is an empty value and not a null one: a null
	// deletes, in a compacted topic.
	dst = binary.AppendVarint(dst, int64(len(r.value)))
	dst = append(dst, r.value...)
	dst = binary.AppendVarint(dst, int64(r.count))
	return append(dst, r.headers...)
}

func (r *record) keyLen() int {
	if r.key == nil {
		return varintLen(-1)
	}
	return varintLen(int64(len(r.key))) + len(r.key)
}

// maxAhead is how far an event's time may lie behind its reception. Brokers
// refuse what is more than an hour ahead of their clock (KIP-937).
const maxAhead = 30 * time.Minute

// recordTime is the event's own time, or, where that is one that brokers
// refuse, the time of its reception. ce_time has it in any case.
func recordTime(e *relay.Event) time.Time {
	if e.Time.Unix() <= 0 || e.Time.Sub(e.Received) > maxAhead {
		return e.Received
	}
	return e.Time
}

// addHeaders follows relay.Event.Attributes, without its allocations.
func (r *record) addHeaders(e *relay.Event) {
	r.header("ce_specversion", relay.SpecVersion)
	r.header("ce_id", e.ID)
	r.header("ce_source", e.Source)
	r.header("ce_type", e.Type)
	r.optional("ce_subject", e.Subject)
	r.timeHeader("ce_time", e.Time)
	r.optional("ce_project", e.Project)
	r.optional("ce_environment", e.Environment)
	r.timeHeader("ce_receivedtime", e.Received)
	r.optional("content-type", e.ContentType)
}

func (r *record) header(name, value string) {
	r.name(name)
	r.headers = binary.AppendVarint(r.headers, int64(len(value)))
	r.headers = append(r.headers, value...)
}

func (r *record) optional(name, value string) {
	if value != "" {
		r.header(name, value)
	}
}

func (r *record) name(name string) {
	r.count++
	r.headers = binary.AppendVarint(r.headers, int64(len(name)))
	r.headers = append(r.headers, name...)
}

func (r *record) timeHeader(name string, t time.Time) {
	r.name(name)
	at := len(r.headers)
	r.headers = append(r.headers, 0)
	r.headers = t.UTC().AppendFormat(r.headers, time.RFC3339Nano)
	length := len(r.headers) - at - 1
	r.headers[at] = byte(length << 1) // its varint: RFC 3339 has far fewer bytes than 64
}

// recordSize is about what a record of e takes before compression, in bytes. In
// structured mode a body that is no JSON takes up to a third more, or more still
// where much of it is escaped: what brokers say to that narrows the limit.
func recordSize(e *relay.Event) int64 {
	const names, times, rest = 120, 60, 30
	return int64(len(e.Body)+len(e.ID)+len(e.Source)+len(e.Type)+len(e.Subject)+len(e.ContentType)+
		2*(len(e.Project)+len(e.Environment))) + names + times + rest
}
