package kafka

import (
	"encoding/binary"
	"time"

	"github.com/auditrelay/auditrelay/internal/cloudevents"
	"github.com/auditrelay/auditrelay/relay"
)

// record is the content of one Kafka record, in reused memory.
type record struct {
	key     []byte // nil: none
	value   []byte
	headers headers

	shared    shared
	clock     clock
	keyMemory []byte
	object    []byte // the value in structured mode
}

// form says how an event becomes a record.
type form struct {
	key        keyFunc
	structured bool // one JSON object; else the body, with headers
}

// set makes r the record of e.
func (r *record) set(e *relay.Event, f form) {
	r.headers.reset()
	if r.key = f.key(r.keyMemory[:0], e); r.key != nil {
		r.keyMemory = r.key
	}
	if f.structured {
		r.object = cloudevents.AppendJSON(r.object[:0], e)
		r.value = r.object
		r.headers.add("content-type", cloudevents.MediaType)
		return
	}
	r.value = e.Body
	r.addHeaders(e)
}

// append appends r as it stands in a batch. Its time and its offset count from
// those of the batch's first record.
func (r *record) append(dst []byte, milliseconds, offset int64) []byte {
	const attributes = 1
	length := attributes + varintLen(milliseconds) + varintLen(offset) + r.keyLen() +
		varintLen(int64(len(r.value))) + len(r.value) + varintLen(int64(r.headers.count)) + len(r.headers.encoded)
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
	// An empty body is an empty value, never a null: in a compacted topic a null
	// deletes.
	dst = binary.AppendVarint(dst, int64(len(r.value)))
	dst = append(dst, r.value...)
	dst = binary.AppendVarint(dst, int64(r.headers.count))
	return append(dst, r.headers.encoded...)
}

func (r *record) keyLen() int {
	if r.key == nil {
		return varintLen(-1)
	}
	return varintLen(int64(len(r.key))) + len(r.key)
}

// maxAhead bounds the lead of an event's time over its reception. Brokers refuse a record
// more than an hour ahead of their clock (KIP-937).
const maxAhead = 30 * time.Minute

// recordTime is the event's own time, or the time of reception if brokers would refuse
// it. ce_time always has the event's own.
func recordTime(e *relay.Event) time.Time {
	if e.Time.Unix() <= 0 || e.Time.Sub(e.Received) > maxAhead {
		return e.Received
	}
	return e.Time
}

// addHeaders adds the attributes of relay.Event.Attributes, in their order.
func (r *record) addHeaders(e *relay.Event) {
	r.shared.fit(e, &r.clock)
	r.headers.add("ce_specversion", relay.SpecVersion)
	r.headers.add("ce_id", e.ID)
	r.headers.join(&r.shared.source)
	r.headers.add("ce_type", e.Type)
	r.headers.optional("ce_subject", e.Subject)
	r.headers.time("ce_time", e.Time, &r.clock)
	r.headers.join(&r.shared.rest)
}

// recordSize estimates the bytes of a record before compression. In structured mode a
// body other than JSON takes a third more, and an escaped one even more. Then a broker's
// refusal narrows the limit.
func recordSize(e *relay.Event) int64 {
	const names, times, rest = 120, 60, 30
	return int64(len(e.Body)+len(e.ID)+len(e.Source)+len(e.Type)+len(e.Subject)+len(e.ContentType)+
		2*(len(e.Project)+len(e.Environment))) + names + times + rest
}
